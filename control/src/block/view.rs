//! What the pages show of block mode.

use std::time::Duration;

use protocol::{
    view::{BlockView, Phase, ReplicaView, RoundsView, RunView, WorkerState},
    worker_id::WorkerId,
};

use super::{Block, round::Share};
use crate::core::RunCore;

impl Block {
    fn share(&self, worker: WorkerId) -> Option<&Share> {
        self.round.as_ref()?.shares.get(&worker)
    }

    pub(super) fn run_view(&self, core: &RunCore, now: Duration) -> RunView {
        let settings = &core.settings;
        let mut workers = core.roster.views(now, |worker| match self.share(worker) {
            Some(_) => (WorkerState::Training, vec![], self.settings.replica_bytes),
            None => (WorkerState::Spare, vec![], 0),
        });
        for worker in &mut workers {
            let id = WorkerId(worker.id);
            let view = self.replicas.get(&id).map(|replica| replica.view).unwrap_or_default();
            worker.replica = Some(ReplicaView { block: self.share(id).map(|share| share.block), ..view });
        }
        let training = core.phase() == Phase::Training;
        RunView {
            run: settings.run.clone(),
            phase: core.phase(),
            reason: core.reason().to_owned(),
            epoch: 0,
            step: self.steps_done(core),
            steps: settings.steps,
            workers_wanted: self.workers_wanted(core),
            parameters: self.settings.parameters,
            corpus: settings.corpus.clone(),
            tokenizer: settings.tokenizer.clone(),
            train_tokens: settings.train_tokens,
            train_loss: self.points.back().or(core.curve.last()).map(|point| point.train_loss),
            validation_loss: self.evaluated.as_ref().map(|(_, scores)| scores.one_draw),
            tokens_per_second: if training { self.tokens_per_second } else { 0.0 },
            efficiency: None,
            balance: None,
            predicted_step_seconds: None,
            snapshot_step: Some(self.steps_done(core)),
            snapshot_state: Some(self.published.state().to_string()),
            rounds: Some(self.rounds_view()),
            refusals: core.refusals.clone(),
            workers,
        }
    }

    fn rounds_view(&self) -> RoundsView {
        let block = |(block, &(sigma_min, sigma_max)): (u32, &(f64, f64))| {
            let shares = || {
                let all = self.round.iter().flat_map(|round| round.shares.values());
                all.filter(|share| share.block == block)
            };
            BlockView {
                sigma_min,
                sigma_max,
                replicas: shares().count() as u32,
                arrived: shares().filter(|share| share.arrived.is_some()).count() as u32,
                updates: self.updates[block as usize],
                local_cross_entropy: self.local[block as usize],
            }
        };
        RoundsView {
            round: self.published.round,
            rounds: self.settings.rounds,
            local_steps: self.settings.local_steps,
            blocks: (0..).zip(&self.settings.ranges).map(block).collect(),
            deadline_seconds: self.round.as_ref().map_or(0.0, |round| round.deadline),
            participation: self.participation,
            mean_participation: self.mean_participation(),
            round_seconds: self.round_seconds,
            accepted: self.totals.accepted,
            refused: self.totals.refused,
            bytes_down: self.totals.bytes_down,
            bytes_up: self.totals.bytes_up,
            aggregator: self.settings.aggregator.clone(),
            evaluation: self.evaluated.clone(),
        }
    }
}
