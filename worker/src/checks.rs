//! What a run and an assignment must satisfy before this device tries them: a coordinator may be wrong, or hostile.

use protocol::spec::{Assignment, Moments, RunSpec};

use crate::error::TaskError;

/// Largest tensor that is tried where nothing else bounds it, in bytes. An allocation that fails ends the program.
const LARGEST_TENSOR: u128 = 64 << 30;

/// Bytes of a file beside its numbers at most: the names and shapes of its tensors.
const HEADER_BYTES: u128 = 16 << 20;

/// Whether a run's sizes fit each other and this device at all.
///
/// # Errors
/// Which do not, in words.
pub(crate) fn check_run(run: &RunSpec) -> Result<(), String> {
    let model = &run.model;
    let sizes = [
        ("model.vocabulary", model.vocabulary),
        ("model.positions", model.positions),
        ("model.width", model.width),
        ("model.heads", model.heads),
        ("sequences", run.sequences),
        ("context", run.context),
    ];
    if let Some((name, _)) = sizes.iter().find(|(_, size)| *size == 0) {
        return Err(format!("{name} of the run is 0"));
    }
    if !model.width.is_multiple_of(model.heads) {
        return Err(format!("{} heads cannot share a width of {}", model.heads, model.width));
    }
    if run.context > model.positions {
        return Err(format!("a context of {} does not fit {} positions", run.context, model.positions));
    }
    let largest = largest_tensor(run);
    let limit = LARGEST_TENSOR.min(usize::MAX as u128);
    if largest > limit {
        let gib = |bytes: u128| bytes >> 30;
        return Err(format!(
            "this run needs a tensor of {} GiB; at most {} are tried",
            gib(largest),
            gib(limit)
        ));
    }
    Ok(())
}

/// Bytes of the largest tensor of any part in f32. Exact where the engine's own count would overflow.
fn largest_tensor(run: &RunSpec) -> u128 {
    let model = &run.model;
    let [v, p, d, h] = [model.vocabulary, model.positions, model.width, model.heads].map(u128::from);
    let [n, t] = [run.sequences, run.context].map(u128::from);
    4 * [v.max(p) * d, 4 * d * d, n * h * t * t, n * t * 4 * d, n * t * v].into_iter().max().unwrap_or(0)
}

/// Bytes of any weights, snapshot or block of the run at most: more is not fetched.
pub(crate) fn largest_file(run: &RunSpec) -> u64 {
    // Of pipeline mode; or of any one block with the table, whose input takes 2 d^2 + 256 d and less.
    let d = u128::from(run.model.width);
    let parameters = u128::from(run.model.parameters()) + 2 * d * d + 300 * d;
    let bytes = parameters * u128::from(Moments::Full.snapshot_bytes()) + HEADER_BYTES;
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

/// Whether the hops of an assignment are parts of the run's model at their places in the plan.
///
/// # Errors
/// [`TaskError::Assignment`].
pub(crate) fn check_assignment(run: &RunSpec, assignment: &Assignment) -> Result<(), TaskError> {
    let wrong = |reason| Err(TaskError::Assignment(reason));
    let Assignment { hops, hop_count, micro_batches, .. } = assignment;
    if hops.is_empty() || *micro_batches == 0 {
        return wrong("it has no hops or no micro-batches");
    }
    if !hops.windows(2).all(|pair| pair[0].index < pair[1].index) {
        return wrong("its hops are not in order");
    }
    for hop in hops {
        let part = &hop.part;
        if hop.index >= *hop_count {
            return wrong("it has a hop beyond the last");
        }
        if part.embedding != (hop.index == 0) || part.head != (hop.index + 1 == *hop_count) {
            return wrong("the embedding belongs to the first hop, the head to the last");
        }
        if part.first_layer > part.end_layer || part.end_layer > run.model.layers {
            return wrong("it has layers that the model does not have");
        }
    }
    Ok(())
}
