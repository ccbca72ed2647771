//! Numbers of the run that its view does not carry ready made.

use protocol::{
    spec::{Hop, ModelSpec},
    view::{Phase, RunView, WorkerView},
};

use super::mode::Mode;

/// Whether nothing more will be trained.
pub(crate) fn is_over(phase: Phase) -> bool {
    matches!(phase, Phase::Finished | Phase::Stopped)
}

/// Whether the run is at work, so that its numbers per second and its estimates mean the present.
pub(crate) fn is_running(phase: Phase) -> bool {
    matches!(phase, Phase::Loading | Phase::Training | Phase::Serving)
}

/// The block a worker trains in the round in progress, from 0.
pub(crate) fn block_of(worker: &WorkerView) -> Option<u32> {
    worker.replica.and_then(|replica| replica.block)
}

/// Whether a worker holds a part of the model: layers, or a block.
pub(crate) fn holds_part(worker: &WorkerView) -> bool {
    !worker.hops.is_empty() || block_of(worker).is_some()
}

/// Workers that hold a part of the model, and workers without one.
pub(crate) fn busy_and_spare(run: &RunView) -> (u64, u64) {
    let busy = run.workers.iter().filter(|worker| holds_part(worker)).count() as u64;
    (busy, run.workers.len() as u64 - busy)
}

/// Share of the run that is done, 0 to 1.
pub(crate) fn share_done(run: &RunView) -> f64 {
    run.step as f64 / run.steps.max(1) as f64
}

/// Seconds until the last step at the present speed; None when the run is not training or has no speed yet.
pub(crate) fn seconds_left(run: &RunView) -> Option<f64> {
    if run.phase != Phase::Training {
        return None;
    }
    let seconds = match Mode::of(&run.run) {
        Mode::Block => {
            let rounds = run.rounds.as_ref()?;
            rounds.rounds.saturating_sub(rounds.round) as f64 * rounds.round_seconds?
        }
        Mode::Serve => return None,
        Mode::Pipeline => {
            let spec = &run.run;
            let tokens = u64::from(spec.sequences) * u64::from(spec.context) * u64::from(spec.micro_batches);
            (run.steps.saturating_sub(run.step) * tokens) as f64 / run.tokens_per_second
        }
    };
    (seconds.is_finite() && seconds > 0.0).then_some(seconds)
}

/// Steps between two points of the curve.
pub(crate) fn stride(run: &RunView) -> u64 {
    run.rounds.as_ref().map_or(1, |rounds| u64::from(rounds.local_steps).max(1))
}

/// Parameters in these parts of a model.
pub(crate) fn parameters(hops: &[Hop], model: &ModelSpec) -> u64 {
    hops.iter().map(|hop| model.part_parameters(&hop.part)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::fixtures::{blocks, pipeline, rounds};

    #[test]
    fn the_time_that_is_left_needs_a_run_that_trains() {
        let mut run = pipeline(Phase::Training);
        // 2 sequences of 8 tokens in 4 micro-batches are 64 tokens a step; 50 steps are left.
        (run.step, run.steps, run.tokens_per_second) = (50, 100, 320.0);
        assert_eq!(seconds_left(&run), Some(10.0));
        run.tokens_per_second = 0.0;
        assert_eq!(seconds_left(&run), None);
        (run.tokens_per_second, run.phase) = (320.0, Phase::Paused);
        assert_eq!(seconds_left(&run), None);

        let mut run = blocks(Phase::Training);
        assert_eq!(seconds_left(&run), None);
        run.rounds.as_mut().unwrap().round_seconds = Some(0.5);
        assert_eq!(seconds_left(&run), Some(200.0));
        assert_eq!((stride(&run), stride(&pipeline(Phase::Training))), (10, 1));
        assert_eq!(rounds().local_steps, 10);
    }
}
