//! What stages report of a step, and what follows once all have.

use protocol::{
    message::{Apply, StepReport, ValidationReport},
    refusal::Refusal,
    view::CurvePoint,
    worker_id::WorkerId,
};

use super::{Action, Activity, InForce, Pipeline, snapshot::Collecting, step::Outcome};
use crate::{core::Turn, record::Record};

/// Steps over which the speed is averaged.
const SPEED_STEPS: usize = 10;
/// Of every so many steps the event log says where each stage's time went.
const TIMED_EVERY: u64 = 10;

impl Pipeline {
    /// The step in progress, if this worker's report of this plan can belong to it.
    fn stepping(&mut self, epoch: u64) -> Option<(&super::plan::Plan, &mut super::StepInProgress)> {
        if epoch != self.epoch {
            return None; // of a plan that has ended meanwhile
        }
        match &mut self.in_force {
            Some(InForce { plan, activity: Activity::Stepping(step), .. }) => Some((plan, step)),
            _ => None,
        }
    }

    pub(super) fn step_report(
        &mut self,
        turn: &mut Turn<'_, Action>,
        worker: WorkerId,
        report: StepReport,
    ) -> Result<(), Refusal> {
        let micro_batches = turn.core.settings.run.micro_batches as usize;
        let Some((plan, step)) = self.stepping(report.epoch) else { return Ok(()) };
        let losses = if plan.last() == Some(worker) { micro_batches } else { 0 };
        step.report(worker, report, losses)
            .map_err(|e| Refusal::NotInPlan { message: "StepReport".into(), detail: e.to_string() })?;
        self.progressed = turn.now;
        Ok(())
    }

    pub(super) fn validation_report(
        &mut self,
        turn: &mut Turn<'_, Action>,
        worker: WorkerId,
        report: &ValidationReport,
    ) -> Result<(), Refusal> {
        let refuse = |detail: String| Refusal::NotInPlan { message: "ValidationReport".into(), detail };
        let Some((plan, step)) = self.stepping(report.epoch) else { return Ok(()) };
        if plan.last() != Some(worker) {
            return Err(refuse("this worker does not hold the head".into()));
        }
        step.validated(report).map_err(|e| refuse(e.to_string()))?;
        let (loss, steps_done) = (step.validation_loss(), step.step);
        self.progressed = turn.now;
        if let Some(loss) = loss {
            self.validation_loss = Some(loss);
            turn.record(Record::Validated { steps_done, loss });
            if let Some(mut point) = self.pending_point.take() {
                point.validation_loss = Some(loss);
                turn.publish(point);
            }
        }
        Ok(())
    }

    /// Closes the step if all its reports are in; false while they are not.
    pub(super) fn close_step(&mut self, turn: &mut Turn<'_, Action>) -> bool {
        let Some(InForce { activity: Activity::Stepping(step), .. }) = &self.in_force else { return false };
        let Some(outcome) = step.outcome() else { return false };
        let (step, opened) = (step.step, step.opened);
        if let Some(loss) = outcome.train_loss {
            let seconds = turn.now.saturating_sub(opened).as_secs_f64();
            self.learn_paces(turn, &outcome);
            self.step_done(turn, step, loss, seconds, outcome);
        }
        self.hold();
        true
    }

    /// How long everybody computed, against what its profile promised.
    fn learn_paces(&self, turn: &mut Turn<'_, Action>, outcome: &Outcome) {
        // Validation counts as forward time: a step with it says nothing of the pace.
        let Some(in_force) = self.in_force.as_ref().filter(|_| outcome.validation_loss.is_none()) else {
            return;
        };
        let micro_batches = turn.core.settings.run.micro_batches;
        for (worker, timings, _) in &outcome.timings {
            if let Some(stage) = in_force.plan.stage(*worker) {
                turn.core.roster.timed(*worker, *timings, &stage.hops, micro_batches);
            }
        }
    }

    fn step_done(
        &mut self,
        turn: &mut Turn<'_, Action>,
        step: u64,
        loss: f64,
        seconds: f64,
        outcome: Outcome,
    ) {
        let Some(in_force) = &mut self.in_force else { return };
        in_force.has_stepped = true;
        let workers = in_force.plan.workers();
        let (efficiency, balance) = (outcome.efficiency(seconds), outcome.balance());
        self.efficiency = Some(efficiency);
        self.balance = Some(balance);
        self.steps_done = step + 1;
        if outcome.validation_loss.is_none() && self.replan.is_none() {
            self.look_for_drift(turn);
        }
        let snapshot = self.wants_snapshot(turn);
        if snapshot {
            self.collecting = Some(Collecting::new(self.steps_done, turn.now, workers.iter().copied()));
        }
        let settings = &turn.core.settings;
        let (epoch, micro_batches) = (self.epoch, settings.run.micro_batches);
        let learning_rate = settings.learning_rate.at(step);
        let clip_scale = settings.run.optimizer.clip_scale(outcome.gradient_norm);
        let last = self.steps_done >= settings.steps;
        let validates = settings.validation_batches > 0 && (self.due(settings.validate_every) || last);
        for worker in &workers {
            turn.send(*worker, Apply { epoch, step, clip_scale, learning_rate, snapshot });
        }
        for (worker, timings, status) in &outcome.timings {
            if let Some(known) = turn.core.roster.get_mut(*worker) {
                known.timings = *timings;
                known.status = *status;
                known.accepted_micro_batches += u64::from(micro_batches);
            }
        }
        self.step_seconds.push(seconds);
        if self.step_seconds.len() > SPEED_STEPS {
            self.step_seconds.remove(0);
        }
        let gradient_norm = outcome.gradient_norm;
        turn.record(Record::StepDone {
            epoch,
            step,
            loss,
            gradient_norm,
            learning_rate,
            seconds,
            efficiency,
            balance,
        });
        if step.is_multiple_of(TIMED_EVERY) {
            turn.record(Record::StepTimed { epoch, step, workers: outcome.timings });
        }
        let point = CurvePoint {
            step: self.steps_done,
            train_loss: loss,
            validation_loss: None,
            learning_rate,
            tokens_per_second: tokens_per_second(&turn.core.settings.run, seconds),
            evaluation: None,
            participation: None,
        };
        if validates {
            self.pending_point = Some(point);
        } else {
            turn.publish(point);
        }
    }

    /// Whether something that comes every so many steps comes now; 0: never.
    pub(super) fn due(&self, every: u64) -> bool {
        every > 0 && self.steps_done.is_multiple_of(every)
    }

    /// Seconds of a step, averaged over the last ones; 0 before the first.
    pub(super) fn mean_step_seconds(&self) -> f64 {
        self.step_seconds.iter().sum::<f64>() / self.step_seconds.len().max(1) as f64
    }
}

/// Tokens of a step over its seconds; 0 for a step of no time.
pub(super) fn tokens_per_second(run: &protocol::spec::RunSpec, seconds: f64) -> f64 {
    let tokens = f64::from(run.sequences) * f64::from(run.context) * f64::from(run.micro_batches);
    if seconds > 0.0 { tokens / seconds } else { 0.0 }
}
