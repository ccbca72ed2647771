//! Stages against one another: splits, micro-batches, recomputing, and what is refused.

use futures::executor::block_on;
use testkit::fixtures::run;

use super::*;
use crate::parameters::{ParameterError, Quantity};

const SHAPE: [usize; 2] = [2, 5];

fn tokens(shift: u32) -> Vec<u32> {
    (0..10).map(|i| (3 * i + shift) % 11).collect()
}

fn hops(run: &RunSpec) -> Vec<Hop> {
    let head = Part { embedding: false, first_layer: 1, end_layer: 2, head: true };
    let first = Part { embedding: true, first_layer: 0, end_layer: 1, head: false };
    assert_eq!(run.model.layers, 2);
    vec![Hop { index: 0, part: first }, Hop { index: 1, part: head }]
}

fn stage(run: &RunSpec, hops: &[Hop]) -> Stage {
    let parameters = ParameterSet::draw(&run.model, hops, 1, &Device::Cpu);
    Stage::new(run, hops, &Device::Cpu, parameters).unwrap()
}

fn whole(run: &RunSpec) -> Stage {
    stage(run, &[Hop { index: 0, part: run.model.whole() }])
}

const TRAIN: Pass = Pass::Train { micro_batch: 0 };

#[test]
fn futures_can_move_between_threads() {
    fn sendable<T: Send>(value: T) -> T {
        value
    }
    let run = run();
    let mut stage = whole(&run);
    let (tokens, targets) = (tokens(0), tokens(1));
    let input = HopInput::Tokens(&tokens);
    block_on(sendable(stage.loss(0, TRAIN, input, &targets, SHAPE, 1.0))).unwrap();
    block_on(sendable(stage.squared_norm())).unwrap();
    block_on(sendable(stage.apply(1.0, 1e-3))).unwrap();
    block_on(sendable(stage.export(Moments::Full))).unwrap();
    block_on(sendable(stage.forward_tokens(0, TRAIN, &tokens, SHAPE))).unwrap_err();
    block_on(sendable(stage.backward(0, 0, vec![]))).unwrap_err();
}

#[test]
fn an_untrained_model_knows_nothing() {
    let run = run();
    let (tokens, targets) = (tokens(0), tokens(1));
    let loss = |pass| {
        let mut stage = whole(&run);
        block_on(stage.loss(0, pass, HopInput::Tokens(&tokens), &targets, SHAPE, 1.0)).unwrap()
    };
    let validated = loss(Pass::Validate { batch: 0 });
    assert!((validated.loss - (11f32).ln()).abs() < 0.05);
    assert_eq!(validated, loss(TRAIN));
    assert_eq!(validated.input_gradient, None);
}

#[test]
fn wrong_calls_are_named() {
    let run = run();
    let mut stage = stage(&run, &hops(&run));
    let hidden = vec![0.0; 80];
    let ids = tokens(0);
    let error = |result: Result<Vec<f32>, StageError>| result.unwrap_err();

    assert_eq!(
        error(block_on(stage.forward_tokens(7, TRAIN, &ids, SHAPE))),
        StageError::UnknownHop { hop: 7 }
    );
    assert!(matches!(
        error(block_on(stage.forward_hidden(0, TRAIN, hidden.clone(), SHAPE))),
        StageError::WrongHop { hop: 0, .. }
    ));
    assert!(matches!(
        error(block_on(stage.forward_hidden(1, TRAIN, hidden.clone(), SHAPE))),
        StageError::WrongHop { hop: 1, .. }
    ));
    assert_eq!(
        error(block_on(stage.forward_tokens(0, TRAIN, &ids, [1, 7]))),
        StageError::TooLong { tokens: 7, positions: 6 }
    );
    assert!(matches!(
        error(block_on(stage.forward_tokens(0, TRAIN, &ids[1..], SHAPE))),
        StageError::Length { found: 9, expected: 10, .. }
    ));
    assert!(matches!(
        error(block_on(stage.forward_tokens(0, TRAIN, &[], [0, 5]))),
        StageError::Length { found: 0, .. }
    ));
    let mut beyond = ids.clone();
    beyond[3] = 11;
    assert_eq!(
        error(block_on(stage.forward_tokens(0, TRAIN, &beyond, SHAPE))),
        StageError::Token { token: 11, vocabulary: 11 }
    );
    assert_eq!(
        block_on(stage.loss(1, TRAIN, HopInput::Hidden(hidden.clone()), &beyond, SHAPE, 1.0)),
        Err(StageError::Token { token: 11, vocabulary: 11 })
    );
    assert_eq!(
        block_on(stage.backward(0, 0, hidden.clone())),
        Err(StageError::NoForward { hop: 0, micro_batch: 0 })
    );
    assert_eq!(stage.in_flight(), 0);

    block_on(stage.forward_tokens(0, TRAIN, &ids, SHAPE)).unwrap();
    assert_eq!(
        error(block_on(stage.forward_tokens(0, TRAIN, &ids, SHAPE))),
        StageError::Repeated { hop: 0, micro_batch: 0 }
    );
    assert!(matches!(
        block_on(stage.backward(0, 0, vec![0.0; 79])),
        Err(StageError::Length { found: 79, expected: 80, .. })
    ));
    assert_eq!(block_on(stage.backward(0, 0, hidden)), Ok(None));
    assert_eq!(stage.in_flight(), 0);
}

#[test]
fn a_loss_that_is_not_finite_is_refused() {
    let run = run();
    let mut stage = stage(&run, &hops(&run));
    let hidden = vec![f32::NAN; 80];
    let result = block_on(stage.loss(1, TRAIN, HopInput::Hidden(hidden), &tokens(1), SHAPE, 1.0));
    assert_eq!(result, Err(StageError::NotFinite { what: "the loss" }));
}

#[test]
fn impossible_stages_are_refused() {
    let mut run = run();
    let set = |run: &RunSpec, hops: &[Hop]| ParameterSet::draw(&run.model, hops, 1, &Device::Cpu);
    let refused = |run: &RunSpec, part: Part| {
        let hops = [Hop { index: 3, part }];
        Stage::new(run, &hops, &Device::Cpu, set(run, &hops)).err().unwrap()
    };
    let middle = Part { embedding: false, first_layer: 1, end_layer: 1, head: false };
    assert!(matches!(refused(&run, middle.clone()), StageError::WrongHop { hop: 3, .. }));
    assert!(matches!(refused(&run, Part { end_layer: 3, ..middle.clone() }), StageError::WrongHop { .. }));
    run.model.tie_embeddings = true;
    assert!(matches!(refused(&run, Part { head: true, ..middle.clone() }), StageError::WrongHop { .. }));
    run.model.heads = 3;
    assert!(matches!(refused(&run, Part { end_layer: 2, ..middle }), StageError::Model { .. }));

    let run = tests::run();
    let all = hops(&run);
    let result = Stage::new(&run, &all, &Device::Cpu, set(&run, &all[..1])).err();
    let missing = ParameterError::Missing("transformer.h.1.ln_1.weight".into());
    assert_eq!(result, Some(StageError::Parameters(missing)));
    let result = Stage::new(&run, &all, &Device::flex(), set(&run, &all)).unwrap();
    assert_eq!(block_on(result.logits(1, HopInput::Hidden(vec![0.0; 80]), SHAPE)), Err(StageError::Mixed));
}

#[test]
fn discarding_makes_a_stage_as_new() {
    let run = run();
    let mut stage = whole(&run);
    let (tokens, targets) = (tokens(0), tokens(1));
    let step = |stage: &mut Stage| {
        block_on(stage.loss(0, TRAIN, HopInput::Tokens(&tokens), &targets, SHAPE, 1.0)).unwrap();
        block_on(stage.squared_norm()).unwrap()
    };
    let first = step(&mut stage);
    assert!(first > 0.0);
    stage.discard();
    assert_eq!(block_on(stage.squared_norm()).unwrap(), 0.0);
    let error = block_on(stage.apply(1.0, 1e-3)).unwrap_err();
    assert!(matches!(error, StageError::Parameters(ParameterError::NoGradient(_))));
    assert_eq!(stage.steps_done(), 0);
    assert_eq!(step(&mut stage), first);
}

#[test]
fn an_export_goes_on_exactly_where_the_stage_was() {
    let run = run();
    let all = [Hop { index: 0, part: run.model.whole() }];
    for device in [Device::Cpu, Device::flex()] {
        let parameters = ParameterSet::draw(&run.model, &all, 1, &device);
        let mut stage = Stage::new(&run, &all, &device, parameters).unwrap();
        let step = |stage: &mut Stage, shift| {
            let input = tokens(shift);
            block_on(stage.loss(0, TRAIN, HopInput::Tokens(&input), &tokens(shift + 1), SHAPE, 1.0)).unwrap();
            block_on(stage.apply(0.5, 1e-2)).unwrap();
        };
        (0..3).for_each(|shift| step(&mut stage, shift));
        let file = block_on(stage.export(Moments::Full)).unwrap();
        assert_eq!(file, block_on(stage.export(Moments::Full)).unwrap());
        let parameters = ParameterSet::import(&run.model, &all, &[&file], &device).unwrap();
        let mut again = Stage::new(&run, &all, &device, parameters).unwrap();
        assert_eq!(again.steps_done(), 3);
        step(&mut stage, 5);
        step(&mut again, 5);
        let continued = block_on(again.export(Moments::Full)).unwrap();
        assert_eq!(continued, block_on(stage.export(Moments::Full)).unwrap());

        // Without moments the weights are the same and AdamW begins anew.
        let bare = block_on(stage.export(Moments::None)).unwrap();
        let parameters = ParameterSet::import(&run.model, &all, &[&bare], &device).unwrap();
        assert_eq!(parameters.steps_done(), 4);
        let moments = block_on(parameters.read(0, Quantity::SecondMoment)).unwrap();
        assert!(moments.iter().all(|&v| v == 0.0));

        // In f16 they are half as large and nearly the same.
        let halves = block_on(stage.export(Moments::F16)).unwrap();
        let read = safetensors::SafeTensors::deserialize(&halves).unwrap();
        assert_eq!(read.tensor("adam_v.transformer.wte.weight").unwrap().dtype(), safetensors::Dtype::F16);
        let parameters = ParameterSet::import(&run.model, &all, &[&halves], &device).unwrap();
        for quantity in [Quantity::FirstMoment, Quantity::SecondMoment] {
            for index in 0..parameters.shapes().len() {
                let exact = block_on(stage.parameters().read(index, quantity)).unwrap();
                let near = block_on(parameters.read(index, quantity)).unwrap();
                let largest = exact.iter().fold(0.0f32, |l, v| l.max(v.abs()));
                // 2^-11 of f16's rounding, twice for the square; and its smallest step near zero.
                let close = |(a, b): (&f32, &f32)| (a - b).abs() <= 1e-3 * a.abs() + 1e-6 * largest;
                assert!(exact.iter().zip(near.iter()).all(close), "{quantity:?} of {index}");
            }
        }
    }
}

#[test]
fn parts_of_a_snapshot_serve_any_other_partition() {
    let run = run();
    let parts = hops(&run);
    let all = [Hop { index: 0, part: run.model.whole() }];
    let files: Vec<Vec<u8>> = parts
        .iter()
        .map(|hop| block_on(stage(&run, std::slice::from_ref(hop)).export(Moments::Full)).unwrap())
        .collect();
    let joined = ParameterSet::import(&run.model, &all, &files, &Device::Cpu).unwrap();
    let drawn = ParameterSet::draw(&run.model, &all, 1, &Device::Cpu);
    assert_eq!(block_on(joined.export(Moments::Full)), block_on(drawn.export(Moments::Full)));

    let missing = ParameterSet::import(&run.model, &all, &files[..1], &Device::Cpu).err();
    assert_eq!(missing, Some(ParameterError::Missing("transformer.h.1.ln_1.weight".into())));
    let mut wider = run.model.clone();
    wider.width = 16;
    let error = ParameterSet::import(&wider, &all, &files, &Device::Cpu).err().unwrap();
    assert_eq!(
        error.to_string(),
        "tensor `transformer.wte.weight` has shape [11, 8] where the model needs [11, 16]"
    );
    let error = ParameterSet::import(&run.model, &all, &[b"no file"], &Device::Cpu).err().unwrap();
    assert!(matches!(error, ParameterError::Format(_)));
}
