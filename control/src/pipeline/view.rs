//! What the pages show of pipeline mode.

use std::time::Duration;

use protocol::{
    spec::Hop,
    view::{Phase, RunView, WorkerState},
    worker_id::WorkerId,
};

use super::{Activity, Pipeline, reports::tokens_per_second};
use crate::core::RunCore;

impl Pipeline {
    pub(super) fn run_view(&self, core: &RunCore, now: Duration) -> RunView {
        let settings = &core.settings;
        let training = core.phase() == Phase::Training;
        let speed = tokens_per_second(&settings.run, self.mean_step_seconds());
        let reason = match &self.snapshot_fault {
            Some(fault) if training => format!("{}; {fault}; it is tried again", core.reason()),
            _ => core.reason().to_owned(),
        };
        RunView {
            run: settings.run.clone(),
            phase: core.phase(),
            reason,
            epoch: self.epoch,
            step: self.steps_done,
            steps: settings.steps,
            workers_wanted: self.workers_wanted(core),
            parameters: settings.run.model.parameters(),
            corpus: settings.corpus.clone(),
            tokenizer: settings.tokenizer.clone(),
            train_tokens: settings.train_tokens,
            train_loss: self.pending_point.as_ref().or(core.curve.last()).map(|point| point.train_loss),
            validation_loss: self.validation_loss,
            tokens_per_second: if training { speed } else { 0.0 },
            efficiency: self.efficiency,
            balance: self.balance,
            predicted_step_seconds: self.in_force.as_ref().map(|f| f.plan.predicted.step_seconds),
            snapshot_step: self.snapshot.as_ref().map(|manifest| manifest.steps_done),
            snapshot_state: self.snapshot.as_ref().map(|manifest| manifest.state.clone()),
            rounds: None,
            refusals: core.refusals.clone(),
            workers: core.roster.views(now, |worker| self.holding(core, worker)),
        }
    }

    fn holding(&self, core: &RunCore, worker: WorkerId) -> (WorkerState, Vec<Hop>, u64) {
        let spare = (WorkerState::Spare, vec![], 0);
        let Some(in_force) = &self.in_force else { return spare };
        let Some(stage) = in_force.plan.stage(worker) else { return spare };
        let state = match &in_force.activity {
            Activity::Loading(ready) if !ready.contains(&worker) => WorkerState::Loading,
            _ if core.settings.run.trains => WorkerState::Training,
            _ => WorkerState::Serving,
        };
        (state, stage.hops.clone(), stage.memory_bytes)
    }
}
