//! Properties of denoisers, alone and composed.

#![allow(clippy::unwrap_used)]

use futures::executor::block_on;
use protocol::spec::{BlockSpec, RunSpec};

use super::{BlockError, LocalRound, Replica, Task, Weights, evaluate::evaluate, sweep::Composed};
use crate::device::Device;

const SHAPE: [usize; 2] = [3, 6];

/// A run of block mode with so many blocks of one layer each.
fn run(count: u32) -> RunSpec {
    let mut run = testkit::fixtures::block_run();
    run.model.layers = count;
    run.blocks = run.blocks.map(|blocks| BlockSpec { count, ..blocks });
    run
}

fn composed(run: &RunSpec, device: &Device) -> Composed {
    let count = run.blocks.unwrap().count;
    let blocks = (0..count).map(|block| Replica::draw(run, block, 5, device).unwrap()).collect();
    block_on(Composed::new(blocks)).unwrap()
}

/// Token ids below V that follow a counter.
fn ids(count: usize, stride: u32, vocabulary: u32) -> Vec<u32> {
    (0..count as u32).map(|i| (i * stride + 1) % vocabulary).collect()
}

fn devices() -> [Device; 2] {
    [Device::Cpu, Device::flex()]
}

#[test]
fn logits_up_to_a_token_do_not_see_what_comes_after_it() {
    let run = run(2);
    let rows = SHAPE[0] * SHAPE[1];
    let (width, vocabulary) = (run.model.width as usize, run.model.vocabulary);
    for device in devices() {
        let replica = Replica::draw(&run, 1, 5, &device).unwrap();
        let x = ids(rows, 7, vocabulary);
        let z: Vec<f32> = (0..rows * width).map(|i| ((i * 31 % 17) as f32 - 8.0) / 4.0).collect();
        let logits = |x: &[u32], z: &[f32]| block_on(replica.denoise(x, z, &[1.0, 2.0, 9.0], SHAPE)).unwrap();
        let before = logits(&x, &z);
        for changed in 1..SHAPE[1] {
            // In the second sequence, so that the others must not change at all.
            let row = SHAPE[1] + changed;
            let (mut other_x, mut other_z) = (x.clone(), z.clone());
            other_x[row] = (x[row] + 1) % vocabulary;
            other_z[row * width..(row + 1) * width].iter_mut().for_each(|z| *z = -*z + 1.0);
            for after in [logits(&other_x, &z), logits(&x, &other_z)] {
                let v = vocabulary as usize;
                assert_eq!(before[..row * v], after[..row * v], "to the bit");
                assert_ne!(before[row * v..(row + 1) * v], after[row * v..(row + 1) * v]);
                assert_eq!(before[2 * SHAPE[1] * v..], after[2 * SHAPE[1] * v..], "the last sequence");
            }
        }
    }
}

#[test]
fn a_sweep_uses_each_block_once_and_ends_with_the_logits_of_the_last() {
    for count in 1..=12 {
        let run = run(count);
        let model = composed(&run, &Device::Cpu);
        let sigmas = model.schedule().one_sweep();
        let owners: Vec<u32> = sigmas.iter().map(|sigma| model.schedule().owner(*sigma)).collect();
        assert_eq!(owners, (0..count).collect::<Vec<_>>());
        let x = ids(SHAPE[0] * SHAPE[1], 5, run.model.vocabulary);
        let start = model.start(1, 0, sigmas[0], SHAPE);
        let mut states = Vec::new();
        let logits = block_on(model.states(&x, start.clone(), SHAPE, &mut states)).unwrap();
        assert_eq!((logits.len(), states.len()), (count as usize, count as usize));
        // The answer is what the last block says to the last state: no step comes after it.
        let last = &model.blocks()[count as usize - 1];
        let sigma = vec![*sigmas.last().unwrap() as f32; SHAPE[0]];
        assert_eq!(
            block_on(last.denoise(&x, states.last().unwrap(), &sigma, SHAPE)).unwrap(),
            logits[count as usize - 1]
        );
    }
}

#[test]
fn euler_steps_land_on_the_target_at_sigma_zero_and_shrink_the_noise_in_proportion() {
    // z = target + sigma * eps: after a step to any sigma the noise is exactly that of the new sigma.
    let target = [0.25f32, -0.5, 1.0];
    let eps = [1.0f32, -2.0, 0.5];
    let at = |sigma: f32| -> Vec<f32> { target.iter().zip(eps).map(|(t, e)| t + sigma * e).collect() };
    for (sigma, next) in [(10.0, 4.0), (4.0, 1.0), (1.0, 0.0)] {
        let mut z = at(sigma);
        super::sweep::euler(&mut z, &target, f64::from(next) / f64::from(sigma));
        for (found, wanted) in z.iter().zip(at(next)) {
            assert!((found - wanted).abs() < 1e-6, "{found} is not {wanted}");
        }
    }
}

#[test]
fn training_lowers_the_scores_and_a_sweep_depends_on_context_and_noise_alone() {
    let run = run(2);
    let [n, t] = SHAPE;
    let vocabulary = run.model.vocabulary;
    let windows = ids(n * (t + 1), 3, vocabulary);
    let mut blocks: Vec<Replica> =
        (0..2).map(|block| Replica::draw(&run, block, 5, &Device::Cpu).unwrap()).collect();
    let before = {
        let fresh = (0..2).map(|block| Replica::draw(&run, block, 5, &Device::Cpu).unwrap()).collect();
        let model = block_on(Composed::new(fresh)).unwrap();
        block_on(evaluate(&model, &windows, SHAPE, 9, 4, async || {})).unwrap()
    };
    for replica in &mut blocks {
        let steps = 150;
        let task =
            Task { seed: 3, learning_rates: vec![1e-2; steps], windows: windows.repeat(steps), shape: SHAPE };
        let mut round = block_on(LocalRound::begin(task, replica)).unwrap();
        while block_on(round.step(replica)).unwrap().is_some() {}
    }
    // The blocks have been trained apart, each with its own table: give both the first one's.
    let values: Vec<_> = blocks.iter().map(|replica| block_on(replica.values()).unwrap()).collect();
    let mut weights = Weights::draw(&run, 5).unwrap();
    weights.table = values[0][0].clone();
    weights.blocks = values.iter().map(|values| values[1..].to_vec()).collect();
    let file = weights.whole_file().unwrap();
    let blocks = (0..2).map(|block| Replica::import(&run, block, &[&file], &Device::Cpu).unwrap()).collect();
    let model = block_on(Composed::new(blocks)).unwrap();
    let after = block_on(evaluate(&model, &windows, SHAPE, 9, 4, async || {})).unwrap();
    assert!(after.one_draw < before.one_draw - 0.5, "{} to {}", before.one_draw, after.one_draw);
    assert!(after.local[0] < before.local[0] - 0.5);
    assert_eq!(after.chain.last(), Some(&after.one_draw));
    let one = block_on(evaluate(&model, &windows, SHAPE, 9, 1, async || {})).unwrap();
    assert!((after.one_draw - one.many_draws).abs() < 1e-5, "one draw averaged is one draw");

    // What a sweep says is a function of the context and the noise alone.
    let (x, _) = super::round::halves(&windows, t);
    let start = || model.start(9, 0, 10.0, SHAPE);
    let said = block_on(model.sweep(&x, start(), SHAPE)).unwrap();
    assert_eq!(said, block_on(model.sweep(&x, start(), SHAPE)).unwrap());
}

#[test]
fn a_round_done_again_gives_the_same_delta_and_another_key_another_one() {
    let run = run(2);
    let [n, t] = SHAPE;
    let task = |seed| Task {
        seed,
        learning_rates: vec![1e-3; 4],
        windows: ids(4 * n * (t + 1), 11, run.model.vocabulary),
        shape: SHAPE,
    };
    for device in devices() {
        let delta = |seed| {
            let mut replica = Replica::draw(&run, 1, 5, &device).unwrap();
            let mut round = block_on(LocalRound::begin(task(seed), &replica)).unwrap();
            while block_on(round.step(&mut replica)).unwrap().is_some() {}
            block_on(round.delta(&replica)).unwrap()
        };
        assert_eq!(delta(1), delta(1));
        assert_ne!(delta(1), delta(2));
        assert!(delta(1).iter().all(|tensor| tensor.iter().any(|x| *x != 0.0)), "everything has moved");
    }
}

#[test]
fn a_replica_takes_new_weights_and_keeps_or_forgets_its_moments() {
    let run = run(1);
    let [n, t] = SHAPE;
    let base = Weights::draw(&run, 5).unwrap().whole_file().unwrap();
    let train = |replica: &mut Replica| {
        let task = Task {
            seed: 1,
            learning_rates: vec![1e-3; 2],
            windows: ids(2 * n * (t + 1), 11, run.model.vocabulary),
            shape: SHAPE,
        };
        let mut round = block_on(LocalRound::begin(task, replica)).unwrap();
        while block_on(round.step(replica)).unwrap().is_some() {}
        block_on(round.delta(replica)).unwrap()
    };
    let again = |fresh| {
        let mut replica = Replica::import(&run, 0, &[&base], &Device::Cpu).unwrap();
        let first = train(&mut replica);
        replica.rebase(&[&base], fresh).unwrap();
        (first, train(&mut replica))
    };
    let (first, second) = again(true);
    assert_eq!(first, second, "without moments it is the first round again");
    let (first, second) = again(false);
    assert_ne!(first, second);
}

#[test]
fn what_makes_no_sense_is_refused_in_words() {
    let refusal = |change: fn(&mut RunSpec), block| {
        let mut run = run(2);
        change(&mut run);
        match Replica::draw(&run, block, 5, &Device::Cpu) {
            Ok(_) => panic!("it was taken"),
            Err(error) => error,
        }
    };
    assert_eq!(refusal(|run| run.blocks = None, 0), BlockError::NotBlockMode);
    assert_eq!(refusal(|_| {}, 2), BlockError::NoSuchBlock { block: 2, count: 2 });
    assert_eq!(refusal(|run| run.model.layers = 3, 0), BlockError::Layers { layers: 3, count: 2 });
    let spec = |run: &mut RunSpec, change: fn(&mut BlockSpec)| change(run.blocks.as_mut().unwrap());
    assert!(matches!(refusal(|run| run.blocks.as_mut().unwrap().sigma_min = 10.0, 0), BlockError::Noise(_)));
    assert!(matches!(refusal(|run| run.blocks.as_mut().unwrap().gamma = -0.1, 0), BlockError::Noise(_)));
    let mut none = run(2);
    spec(&mut none, |spec| spec.count = 0);
    assert!(matches!(Replica::draw(&none, 0, 5, &Device::Cpu).err(), Some(BlockError::Layers { .. })));
}
