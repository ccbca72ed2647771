//! Decoding with caches, against passes over whole windows and against the texts of `transformers`.

#![allow(clippy::unwrap_used)]

use engine::{
    Device,
    gpt2::{Cache, Decode, HopInput, Stage, StageError},
    parameters::ParameterSet,
};
use futures::executor::block_on;
use protocol::spec::{Hop, ModelSpec, Part};
use testkit::golden::Tolerances;

fn model(tie_embeddings: bool) -> ModelSpec {
    ModelSpec { vocabulary: 50, positions: 24, width: 24, heads: 3, layers: 5, tie_embeddings }
}

/// The model in `parts` stages of nearly equal length; tied, the head comes back to the first.
fn split(model: &ModelSpec, parts: u32) -> Vec<Vec<Hop>> {
    let mut stages: Vec<Vec<Hop>> = (0..parts)
        .map(|index| {
            let [first_layer, end_layer] = [index, index + 1].map(|index| index * model.layers / parts);
            let head = index + 1 == parts && (!model.tie_embeddings || parts == 1);
            vec![Hop { index, part: Part { embedding: index == 0, first_layer, end_layer, head } }]
        })
        .collect();
    if model.tie_embeddings && parts > 1 {
        let part = Part { embedding: false, first_layer: model.layers, end_layer: model.layers, head: true };
        stages[0].push(Hop { index: parts, part });
    }
    stages
}

fn stages(model: &ModelSpec, parts: u32, device: &Device) -> Vec<Stage> {
    let stage = |hops: &Vec<Hop>| {
        let parameters = ParameterSet::draw(model, hops, 5, device);
        Stage::for_inference(model, hops, device, parameters).unwrap()
    };
    split(model, parts).iter().map(stage).collect()
}

/// One request's tokens, of length `len`.
fn tokens(request: u32, len: usize) -> Vec<u32> {
    (0..len as u32).map(|i| (i * i + 7 * request + i / 3) % 50).collect()
}

/// Logits of every token of every request, with caches: `pieces` says how many tokens of each request go through all
/// stages in each traversal.
fn decoded(
    model: &ModelSpec,
    parts: u32,
    device: &Device,
    requests: &[Vec<u32>],
    pieces: &[Vec<usize>],
) -> Vec<Vec<f32>> {
    let stages = stages(model, parts, device);
    let hops: Vec<(usize, Hop)> = {
        let plan = split(model, parts);
        let mut hops: Vec<_> = plan
            .into_iter()
            .enumerate()
            .flat_map(|(stage, hops)| hops.into_iter().map(move |hop| (stage, hop)))
            .collect();
        hops.sort_by_key(|(_, hop)| hop.index);
        hops
    };
    // One cache for each hop and request.
    let mut caches: Vec<Vec<Cache>> = hops
        .iter()
        .map(|(stage, hop)| {
            requests
                .iter()
                .map(|tokens| stages[*stage].open_cache(hop.index, tokens.len()).unwrap())
                .collect()
        })
        .collect();
    let mut logits = vec![Vec::new(); requests.len()];
    let mut done = vec![0; requests.len()];
    for piece in pieces {
        let taking: Vec<usize> = (0..requests.len()).filter(|&index| piece[index] > 0).collect();
        let mut hidden: Vec<Vec<f32>> = vec![vec![]; taking.len()];
        for ((stage, hop), caches) in hops.iter().zip(&mut caches) {
            let mut batch = Vec::new();
            let mut caches = caches.iter_mut().enumerate();
            for (&index, hidden) in taking.iter().zip(hidden) {
                let (_, cache) = caches.by_ref().find(|(at, _)| *at == index).unwrap();
                let input = match hop.part.embedding {
                    true => HopInput::Tokens(&requests[index][done[index]..done[index] + piece[index]]),
                    false => HopInput::Hidden(hidden),
                };
                let logits = if hop.part.head { piece[index] } else { 0 };
                batch.push(Decode { cache, input, logits });
            }
            hidden = block_on(stages[*stage].decode(hop.index, batch)).unwrap();
        }
        for (&index, new) in taking.iter().zip(hidden) {
            logits[index].extend(new);
            done[index] += piece[index];
        }
    }
    assert!(requests.iter().zip(done).all(|(tokens, done)| tokens.len() == done));
    logits
}

/// Prompts first, then a token each, then some at once; requests end at different times.
fn pieces(requests: &[Vec<u32>]) -> Vec<Vec<usize>> {
    let mut left: Vec<usize> = requests.iter().map(Vec::len).collect();
    let mut pieces = Vec::new();
    for round in 0.. {
        if left.iter().all(|&left| left == 0) {
            break;
        }
        let wish = |index: usize| match round {
            0 => 1 + 4 * index,
            round if round % 3 == 2 => 3,
            _ => 1,
        };
        let piece: Vec<usize> = left.iter().enumerate().map(|(index, &left)| wish(index).min(left)).collect();
        left.iter_mut().zip(&piece).for_each(|(left, piece)| *left -= piece);
        pieces.push(piece);
    }
    pieces
}

fn requests() -> Vec<Vec<u32>> {
    [24, 1, 17, 20].into_iter().enumerate().map(|(index, len)| tokens(index as u32, len)).collect()
}

#[test]
fn logits_are_those_of_whole_windows_on_every_split_and_device() {
    for tied in [false, true] {
        let model = model(tied);
        let whole = &stages(&model, 1, &Device::Cpu)[0];
        let requests = requests();
        let expected: Vec<Vec<f32>> = requests
            .iter()
            .map(|tokens| block_on(whole.logits(0, HopInput::Tokens(tokens), [1, tokens.len()])).unwrap())
            .collect();
        let highest = expected.iter().flatten().fold(0.0f32, |highest, logit| highest.max(logit.abs()));
        let mut cut: Option<Vec<Vec<f32>>> = None;
        for device in [Device::Cpu, Device::flex()] {
            for parts in 1..=4 {
                let found = decoded(&model, parts, &device, &requests, &pieces(&requests));
                for (found, expected) in found.iter().flatten().zip(expected.iter().flatten()) {
                    // The golden vectors' tolerance: the same sums, in another order.
                    let tolerance = Tolerances::CPU.activation * f64::from(highest);
                    assert!(f64::from((found - expected).abs()) <= tolerance, "{found}, not {expected}");
                }
                if matches!(device, Device::Cpu) {
                    let before = cut.get_or_insert_with(|| found.clone());
                    assert_eq!(*before, found, "the same bits however the model is split");
                }
            }
        }
    }
}

#[test]
fn the_pieces_and_the_company_of_a_request_do_not_matter() {
    let model = model(false);
    let requests = requests();
    let together = decoded(&model, 2, &Device::Cpu, &requests, &pieces(&requests));
    for (tokens, together) in requests.iter().zip(&together) {
        let alone = std::slice::from_ref(tokens);
        for piece in [1, 2, 5, tokens.len()] {
            let mut left = tokens.len();
            let pieces: Vec<Vec<usize>> = std::iter::from_fn(|| {
                let next = piece.min(left);
                left -= next;
                (next > 0).then(|| vec![next])
            })
            .collect();
            assert_eq!(&decoded(&model, 2, &Device::Cpu, alone, &pieces)[0], together);
        }
    }
}

#[test]
fn a_shortened_cache_is_as_if_the_rest_had_never_been() {
    let model = model(false);
    for device in [Device::Cpu, Device::flex()] {
        let stage = &stages(&model, 1, &device)[0];
        let through = |cache: &mut Cache, tokens: &[u32]| {
            let decode = Decode { cache, input: HopInput::Tokens(tokens), logits: 1 };
            block_on(stage.decode(0, vec![decode])).unwrap().remove(0)
        };
        let [mut straight, mut detour] = [0, 1].map(|_| stage.open_cache(0, 10).unwrap());
        through(&mut straight, &[1, 2, 3]);
        let expected = through(&mut straight, &[4, 5]);
        through(&mut detour, &[1, 2, 3, 9, 9, 9]);
        detour.truncate(3);
        assert_eq!((detour.len(), detour.positions()), (3, 10));
        assert_eq!(through(&mut detour, &[4, 5]), expected);
        detour.truncate(0);
        assert!(detour.is_empty());
        through(&mut detour, &[1, 2, 3]);
        assert_eq!(through(&mut detour, &[4, 5]), expected);
    }
}

#[test]
fn what_does_not_fit_a_cache_is_refused_and_changes_nothing() {
    let model = model(false);
    let whole = &stages(&model, 1, &Device::Cpu)[0];
    let halves = stages(&model, 2, &Device::Cpu);
    assert_eq!(whole.open_cache(0, 25).err(), Some(StageError::TooLong { tokens: 25, positions: 24 }));
    assert_eq!(whole.open_cache(1, 4).err(), Some(StageError::UnknownHop { hop: 1 }));
    let mut cache = whole.open_cache(0, 4).unwrap();
    let mut try_with = |stage: &Stage, hop, input: HopInput<'_>, logits| {
        let mut other = whole.open_cache(0, 4).unwrap();
        let fine = Decode { cache: &mut other, input: HopInput::Tokens(&[1, 2]), logits: 1 };
        let second = Decode { cache: &mut cache, input, logits };
        let batch = if hop == 0 { vec![fine, second] } else { vec![second] };
        let result = block_on(stage.decode(hop, batch));
        assert_eq!((other.len(), cache.len()), if result.is_ok() { (2, 3) } else { (0, 0) });
        result.err()
    };
    let five = HopInput::Tokens(&[1, 2, 3, 4, 5]);
    assert_eq!(try_with(whole, 0, five, 1), Some(StageError::TooLong { tokens: 5, positions: 4 }));
    let unknown = StageError::Token { token: 50, vocabulary: 50 };
    assert_eq!(try_with(whole, 0, HopInput::Tokens(&[1, 50]), 1), Some(unknown));
    assert!(matches!(try_with(whole, 0, HopInput::Tokens(&[]), 0), Some(StageError::Length { .. })));
    assert!(matches!(try_with(whole, 0, HopInput::Tokens(&[1]), 2), Some(StageError::Length { .. })));
    assert!(matches!(
        try_with(whole, 0, HopInput::Hidden(vec![0.0; 24]), 1),
        Some(StageError::WrongHop { .. })
    ));
    let wrong = try_with(&halves[1], 1, HopInput::Hidden(vec![0.0; 24]), 1);
    assert_eq!(wrong, Some(StageError::WrongCache { hop: 1 }));
    assert_eq!(try_with(whole, 0, HopInput::Tokens(&[1, 2, 3]), 0), None);
}

#[test]
fn a_cache_knows_its_bytes() {
    let gpt2 = ModelSpec {
        vocabulary: 50257,
        positions: 1024,
        width: 768,
        heads: 12,
        layers: 12,
        tie_embeddings: true,
    };
    assert_eq!(Cache::bytes(&gpt2, &gpt2.whole(), 1024), 2 * 12 * 1024 * 768 * 4);
    let half = Part { embedding: false, first_layer: 2, end_layer: 5, head: false };
    assert_eq!(Cache::bytes(&gpt2, &half, 10), 2 * 3 * 10 * 768 * 4);
}
