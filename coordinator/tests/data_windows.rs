//! Which tokens a batch holds: every window once an epoch, and the same ones whenever asked.

use std::{collections::HashSet, sync::Arc};

use coordinator::data::{
    token_file::{TokenFile, TokenKey, TokenWriter},
    windows::{TrainWindows, ValidationWindows, WindowShape},
};
use proptest::prelude::*;

/// A file whose id at place i is i, so that a window tells where it was cut.
fn counting(tokens: u32, validation_fraction: f64) -> Arc<TokenFile> {
    let folder = tempfile::tempdir().expect("folder");
    let key = TokenKey { tokenizer: blake3::hash(b"t"), source: blake3::hash(b"s"), validation_fraction };
    let mut writer =
        TokenWriter::create(&folder.path().join("x.tokens"), &key, tokens.max(1)).expect("creates");
    writer.push(&(0..tokens).collect::<Vec<_>>()).expect("writes");
    Arc::new(writer.finish().expect("finishes"))
}

#[derive(Debug, Clone, Copy)]
struct Sizes {
    tokens: u32,
    seed: u64,
    shape: WindowShape,
    micro_batches: u32,
}

fn sizes() -> impl Strategy<Value = Sizes> {
    (1u32..9, 1u32..400, any::<u64>(), 1u32..6, 1u32..6).prop_map(
        |(context, more, seed, sequences, micro_batches)| Sizes {
            tokens: context + more,
            seed,
            shape: WindowShape { sequences, context },
            micro_batches,
        },
    )
}

fn train(s: Sizes) -> TrainWindows {
    TrainWindows::new(counting(s.tokens, 0.0), s.seed, s.shape, s.micro_batches).expect("long enough")
}

/// Start of each sequence of a batch, which must be a window of T + 1 tokens in a row.
fn starts(windows: &TrainWindows, step: u64, micro_batch: u32) -> Vec<u32> {
    let WindowShape { sequences, context } = windows.shape();
    let batch = windows.batch(step, micro_batch);
    assert_eq!(batch.inputs.len(), (sequences * context) as usize);
    assert_eq!(batch.targets.len(), batch.inputs.len());
    let rows = batch.inputs.chunks(context as usize).zip(batch.targets.chunks(context as usize));
    rows.map(|(inputs, targets)| {
        let start = inputs[0];
        assert!(inputs.iter().zip(start..).all(|(id, i)| *id == i), "{inputs:?} is not one window");
        assert!(targets.iter().zip(start + 1..).all(|(id, i)| *id == i), "{targets:?} does not follow");
        start
    })
    .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn every_window_comes_once_an_epoch(s in sizes()) {
        let windows = train(s);
        let epoch = windows.per_epoch();
        // All but the two ends of the split are used.
        prop_assert!(epoch * u64::from(s.shape.context) + 2 * u64::from(s.shape.context) > u64::from(s.tokens));
        let (mut step, mut micro_batch, mut order) = (0, 0, Vec::new());
        while (order.len() as u64) < 3 * epoch {
            order.extend(starts(&windows, step, micro_batch));
            micro_batch += 1;
            if micro_batch == s.micro_batches { (step, micro_batch) = (step + 1, 0) }
        }
        for chunk in order.chunks_exact(epoch as usize).take(3) {
            let mut sorted = chunk.to_vec();
            sorted.sort_unstable();
            // Distinct, in steps of exactly T, and inside the split: each window once, none overlapping.
            prop_assert!(sorted.windows(2).all(|pair| pair[1] - pair[0] == s.shape.context), "{:?}", sorted);
            prop_assert!(sorted[0] < s.shape.context);
            prop_assert!(sorted[sorted.len() - 1] + s.shape.context < s.tokens);
        }
    }

    #[test]
    fn a_batch_does_not_depend_on_what_was_asked_before(s in sizes(), steps in 1u64..40) {
        let windows = train(s);
        let forward: Vec<_> = (0..steps).flat_map(|step| (0..s.micro_batches).map(move |m| (step, m))).collect();
        let batches: Vec<_> = forward.iter().map(|(step, m)| windows.batch(*step, *m)).collect();
        // A restart in the middle, going backwards.
        let again = train(s);
        for ((step, m), batch) in forward.iter().zip(&batches).rev() {
            prop_assert_eq!(&again.batch(*step, *m), batch);
        }
    }

    #[test]
    fn the_last_step_of_a_long_run_can_be_asked_for(s in sizes(), step in any::<u64>()) {
        let windows = train(s);
        prop_assert!(windows.batch(step, 0).targets.iter().all(|id| *id < s.tokens));
    }

    #[test]
    fn validation_goes_through_the_held_out_part_in_order(s in sizes()) {
        let tokens = counting(2 * s.tokens, 0.5);
        let (begin, end) = (tokens.train_tokens() as u32, tokens.len() as u32);
        let windows = ValidationWindows::new(tokens, s.shape).expect("long enough");
        let count = (end - begin - 1) / s.shape.context;
        prop_assert_eq!(windows.batches(), u64::from(count / s.shape.sequences).max(1));
        for index in 0..windows.batches() + 2 {
            let batch = windows.batch(index);
            for row in 0..s.shape.sequences {
                // In order, and from the beginning again after the last one.
                let start = begin + (index as u32 * s.shape.sequences + row) % count * s.shape.context;
                let ids = row as usize * s.shape.context as usize..(row + 1) as usize * s.shape.context as usize;
                let expected: Vec<u32> = (start..start + s.shape.context).collect();
                prop_assert_eq!(&batch.inputs[ids.clone()], &expected[..]);
                let expected: Vec<u32> = (start + 1..=start + s.shape.context).collect();
                prop_assert_eq!(&batch.targets[ids], &expected[..]);
                prop_assert!(start + s.shape.context < end);
            }
        }
    }

    #[test]
    fn training_never_sees_the_held_out_part(s in sizes()) {
        let tokens = counting(2 * s.tokens, 0.5);
        let begin = tokens.train_tokens() as u32;
        let windows = TrainWindows::new(tokens, s.seed, s.shape, s.micro_batches).expect("long enough");
        for step in 0..20 {
            prop_assert!(windows.batch(step, 0).targets.iter().all(|id| *id < begin));
        }
    }
}

#[test]
fn seeds_and_epochs_have_orders_and_offsets_of_their_own() {
    let shape = WindowShape { sequences: 1, context: 16 };
    let order = |seed, epoch: u64| {
        let windows = train(Sizes { tokens: 16 * 200, seed, shape, micro_batches: 1 });
        let n = windows.per_epoch();
        (0..n).map(|i| windows.place(epoch * n + i, 0, 0)).collect::<Vec<_>>()
    };
    let windows = |places: &[coordinator::data::windows::WindowPlace]| {
        places.iter().map(|p| p.window).collect::<Vec<_>>()
    };
    let (a, b, c) = (order(1, 0), order(1, 1), order(2, 0));
    assert!(a.iter().all(|p| p.epoch == 0) && b.iter().all(|p| p.epoch == 1));
    for (x, y) in [(&a, &b), (&a, &c), (&b, &c)] {
        let equal = windows(x).iter().zip(windows(y)).filter(|(p, q)| **p == *q).count();
        assert!(equal < 10, "{equal} of {} places agree", a.len());
    }
    let offsets: HashSet<u64> =
        (0..64).map(|epoch| order(1, epoch).iter().map(|p| p.start).min().expect("windows")).collect();
    assert!(offsets.len() > 8, "64 epochs of 16 possible offsets have only {}", offsets.len());
}

#[test]
fn a_split_without_a_window_is_refused_with_its_size() {
    let shape = WindowShape { sequences: 1, context: 10 };
    let error = TrainWindows::new(counting(10, 0.0), 1, shape, 1).expect_err("too short");
    assert_eq!(
        error.to_string(),
        "the training split has 10 tokens, but a window takes 11 (training.context + 1): give a longer corpus in \
         data.source, lower training.context, or lower data.validation_fraction"
    );
    assert!(TrainWindows::new(counting(11, 0.0), 1, shape, 1).is_ok());
    let error = ValidationWindows::new(counting(100, 0.1), shape).expect_err("too short");
    assert_eq!((error.split, error.tokens, error.needed), ("validation", 10, 11));
    assert!(error.to_string().contains("raise data.validation_fraction"), "{error}");
    assert!(ValidationWindows::new(counting(110, 0.1), shape).is_ok());
}
