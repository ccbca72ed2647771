//! What comes between two steps: the end, another plan, a pause, or the next step.

use protocol::{
    message::{Address, DrainReason, Pass},
    view::Phase,
};

use super::{Action, Activity, Half, Pipeline, planning::plural, step::StepInProgress};
use crate::{
    core::{RunCore, Turn},
    run::end,
};

impl Pipeline {
    /// Whether everything up to here is in a snapshot, or there is nothing to save.
    fn is_saved(&self) -> bool {
        self.snapshot.as_ref().map_or(0, |manifest| manifest.steps_done) == self.steps_done
    }

    /// Whether all steps are done and saved, as in a finished run that is resumed: no worker is needed for that.
    pub(super) fn is_over(&self, core: &RunCore) -> bool {
        self.steps_done >= core.settings.steps && self.is_saved()
    }

    /// Whether a snapshot of the weights as they are is on its way.
    fn is_saving(&self) -> bool {
        self.collecting.is_some() || self.writing.is_some()
    }

    pub(super) fn hold(&mut self) {
        if let Some(in_force) = &mut self.in_force {
            in_force.activity = Activity::Holding;
        }
    }

    /// Decides what comes next; false when something must come first.
    pub(super) fn boundary(&mut self, turn: &mut Turn<'_, Action>) -> bool {
        let finished = self.steps_done >= turn.core.settings.steps;
        if finished && self.pending_point.is_some() {
            // The last weights are measured before the run is over.
            return self.open_step(turn);
        }
        if finished || turn.core.stopping {
            return self.boundary_at_the_end(turn, finished);
        }
        if let Some((phase, words)) = turn.core.held() {
            turn.enter(phase, words);
            return false;
        }
        if !turn.core.settings.run.trains {
            self.only_serve(turn);
            return false;
        }
        // Each plan does a step before the next: or workers whose speed goes up and down would keep all loading.
        let has_stepped = self.in_force.as_ref().is_some_and(|in_force| in_force.has_stepped);
        match self.replan.clone().filter(|_| has_stepped) {
            Some(why) => self.boundary_before_another_plan(turn, why),
            None => self.open_step(turn),
        }
    }

    /// Ends the run once its weights are safe.
    pub(super) fn boundary_at_the_end(&mut self, turn: &mut Turn<'_, Action>, finished: bool) -> bool {
        if self.is_saved() {
            if finished {
                end(self, turn, DrainReason::Finished, "all steps are done");
            } else {
                end(self, turn, DrainReason::Stopped, "stopped by the organizer");
            }
            return false;
        }
        if self.is_saving() {
            let words = match &self.snapshot_fault {
                Some(fault) => format!("held: {fault}"),
                None => "saving the last weights".into(),
            };
            turn.enter(Phase::Training, words);
            return false;
        }
        if finished {
            // The last snapshot came to nothing: its step is done again from the one before.
            self.discard_plan(turn, "the last snapshot could not be completed".into());
            return true;
        }
        // Stopped at a boundary whose weights nobody was asked for: one more step asks.
        self.open_step(turn)
    }

    fn boundary_before_another_plan(&mut self, turn: &mut Turn<'_, Action>, why: String) -> bool {
        if self.is_saved() {
            self.replan = None;
            // Whoever made it worth while may have left meanwhile.
            if let Some(plan) = self.better_plan(turn) {
                self.put_in_force(turn, plan, why);
            }
            return true;
        }
        if self.is_saving() {
            turn.enter(Phase::Training, "saving the weights before the model is split anew");
            return false;
        }
        // Decided too late for a snapshot at this boundary; the next step takes one.
        self.open_step(turn)
    }

    fn open_step(&mut self, turn: &mut Turn<'_, Action>) -> bool {
        self.progressed = turn.now;
        self.finding_owing = false;
        let settings = &turn.core.settings;
        let step = self.steps_done;
        let validation = if self.pending_point.is_some() { settings.validation_batches } else { 0 };
        let training = step < settings.steps;
        let micro_batches = if training { settings.run.micro_batches } else { 0 };
        let Some(in_force) = &mut self.in_force else { return false };
        let (Some(first), Some(last)) = (in_force.plan.first(), in_force.plan.last()) else { return false };
        let last_hop = in_force.plan.holders.len() as u32 - 1;
        in_force.activity = Activity::Stepping(if training {
            StepInProgress::train(step, turn.now, &in_force.plan.workers(), validation)
        } else {
            StepInProgress::validate_only(step, turn.now, validation)
        });
        let stages = in_force.plan.stages.len();
        turn.act(Action::OpenStep { step });
        let passes = (0..validation)
            .map(|batch| Pass::Validate { batch })
            .chain((0..micro_batches).map(|micro_batch| Pass::Train { micro_batch }));
        for pass in passes {
            let to = |hop| Address { epoch: self.epoch, step, pass, hop };
            turn.act(Action::SendBatch { worker: last, to: to(last_hop), half: Half::Targets });
            turn.act(Action::SendBatch { worker: first, to: to(0), half: Half::Inputs });
        }
        turn.enter(Phase::Training, format!("training on {stages} worker{}", plural(stages)));
        true
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use protocol::{
        spec::{ModelSpec, Moments, OptimizerSpec, RunSpec},
        tensor::Encoding,
        view::Phase,
    };

    use crate::{
        curve::Curve,
        event::Event,
        learning_rate::LearningRate,
        pipeline::{Manifest, PipelineRun, plan::Stages},
        settings::Settings,
    };

    /// A run of 40 steps that was done when its last snapshot had seen `steps_done`.
    fn resumed(steps_done: u64) -> PipelineRun {
        let model =
            ModelSpec { vocabulary: 16, positions: 8, width: 4, heads: 2, layers: 4, tie_embeddings: false };
        let settings = Settings {
            run: RunSpec {
                name: "test".into(),
                model: model.clone(),
                optimizer: OptimizerSpec {
                    beta1: 0.9,
                    beta2: 0.95,
                    epsilon: 1e-8,
                    weight_decay: 0.1,
                    clip_norm: 1.0,
                },
                sequences: 2,
                context: 8,
                micro_batches: 3,
                recompute: false,
                wire: Encoding::F32,
                moments: Moments::Full,
                trains: true,
                cache_bytes: 0,
                blocks: None,
            },
            steps: 40,
            seed: 1,
            start_with: 1,
            learning_rate: LearningRate { peak: 1e-3, floor: 1e-4, warmup_steps: 2, total_steps: 40 },
            validate_every: 0,
            validation_batches: 1,
            snapshot_every: 10,
            heartbeat: Duration::from_secs(5),
            lease: Duration::from_secs(30),
            step_deadline: Duration::from_mins(10),
            max_workers: 8,
            texts_share: 0.2,
            corpus: "text".into(),
            tokenizer: "bytes".into(),
            train_tokens: 1000,
        };
        let manifest =
            Manifest { steps_done, epoch: 1, model, micro_batches: 3, state: String::new(), parts: vec![] };
        PipelineRun::new(settings, Stages::Auto, Some(manifest), Curve::default())
    }

    #[test]
    fn a_finished_run_that_is_resumed_is_over_without_workers() {
        for (steps_done, phase) in [(40, Phase::Finished), (41, Phase::Finished), (30, Phase::Waiting)] {
            let mut run = resumed(steps_done);
            run.handle(Duration::from_secs(1), Event::Tick);
            assert_eq!(run.phase(), phase, "{steps_done} steps");
        }
    }
}
