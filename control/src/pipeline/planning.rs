//! Plans: made when the workers suffice, replaced when another is clearly better, discarded when a worker is lost.

use std::{collections::BTreeSet, time::Duration};

use protocol::{
    message::{Assign, Benchmark, DrainReason, Revoke},
    spec::{Assignment, RunSpec, WeightSource},
    view::Phase,
    worker_id::WorkerId,
};

use super::{
    Action, Activity, InForce, Pipeline,
    plan::{self, Plan, Stages},
    relay::Relay,
};
use crate::{
    core::{RunCore, Turn},
    record::Record,
    run::end,
};

/// A newcomer's plan must promise to be faster than the one in force by this factor, or nothing is moved.
pub(super) const REPLAN_GAIN: f64 = 1.1;

/// A pace that has changed by less than this factor since the plan was made has not changed.
const DRIFT: f64 = 1.15;
/// A plan for workers whose pace has changed must promise to be faster by this factor, ...
const DRIFT_GAIN: f64 = 1.25;
/// ... over this many steps in a row, ...
const DRIFT_STEPS: u32 = 3;
/// ... and what it saves in the steps to come must be worth this many steps: that is what moving weights costs.
const DRIFT_COST: f64 = 10.0;

/// A spare measures itself again after this long: it may have been throttled, or have recovered.
const MEASURE_AGAIN: Duration = Duration::from_secs(30);

impl Pipeline {
    /// Workers that the run waits for.
    pub(super) fn workers_wanted(&self, core: &RunCore) -> u32 {
        let stages = match self.stages {
            Stages::Auto => 1,
            Stages::Exactly(n) => n,
        };
        if core.started { stages } else { stages.max(core.settings.start_with) }
    }

    fn waiting_reason(&self, core: &RunCore, now: Duration) -> String {
        let want = self.workers_wanted(core);
        let have = core.roster.ready_count(now);
        let suspended = core.roster.suspended(now);
        let measuring = core.roster.len() - core.roster.profiled_count();
        let mut words = match (have, measuring, suspended) {
            (0, 0, 0) => format!("waiting for {want} worker{}", plural(want as usize)),
            (_, 0, _) => format!("{have} of {want} workers are ready"),
            _ => format!("{have} of {want} workers are ready, {measuring} measuring"),
        };
        if suspended > 0 {
            words.push_str(&format!("; {suspended} suspended after faults for a while"));
            if let Some(last) = &self.last_discard {
                words.push_str(&format!(", the last: {last}"));
            }
        }
        words
    }

    /// Makes a plan if the workers suffice; false when they do not.
    pub(super) fn try_plan(&mut self, turn: &mut Turn<'_, Action>) -> bool {
        if self.is_writing(turn) {
            // All of its parts are there: going back to the one before would be to do its steps again.
            turn.enter(Phase::Waiting, "writing the snapshot that the run goes on from");
            return false;
        }
        let steps = turn.core.settings.steps;
        if self.pending_point.is_none() && self.snapshot.as_ref().is_some_and(|s| s.steps_done >= steps) {
            end(self, turn, DrainReason::Finished, "all steps are done");
            return false;
        }
        if turn.core.stopping {
            end(self, turn, DrainReason::Stopped, "stopped by the organizer");
            return false;
        }
        if self.is_over(turn.core) {
            end(self, turn, protocol::message::DrainReason::Finished, "all steps are done");
            return false;
        }
        if let Some((phase, words)) = turn.core.held() {
            turn.enter(phase, words);
            return false;
        }
        if (turn.core.roster.ready_count(turn.now) as u32) < self.workers_wanted(turn.core) {
            self.impossible = None;
            let words = self.waiting_reason(turn.core, turn.now);
            turn.enter(Phase::Waiting, words);
            return false;
        }
        // A search over all orders of the workers is not repeated at every heartbeat.
        if std::mem::take(&mut self.try_again) || self.impossible.is_none() {
            let measured = turn.core.roster.measured(turn.now);
            match self.first_plan(&turn.core.settings.run, &measured) {
                Ok(plan) => {
                    self.impossible = None;
                    self.put_in_force(turn, plan, "the workers suffice".into());
                    return true;
                }
                Err(error) => self.impossible = Some(error.to_string()),
            }
        }
        let words = self.impossible.clone().unwrap_or_default();
        turn.enter(Phase::Waiting, words);
        false
    }

    /// The last plan with others in the place of those that have gone, in a run that only writes texts: whoever stays has
    /// its weights already. None where too few fit.
    fn same_cut(&self, run: &RunSpec, measured: &[plan::Measured]) -> Option<Plan> {
        let mut plan = self.served.clone().filter(|_| !run.trains)?;
        let held = plan.workers();
        let mut free: Vec<_> = measured.iter().filter(|one| !held.contains(&one.worker)).collect();
        for stage in &mut plan.stages {
            if measured.iter().any(|one| one.worker == stage.worker) {
                continue;
            }
            let fits =
                |one: &&plan::Measured| one.memory_bytes == 0 || one.memory_bytes >= stage.memory_bytes;
            let next = free.remove(free.iter().position(fits)?).worker;
            for holder in plan.holders.iter_mut().filter(|holder| **holder == stage.worker) {
                *holder = next;
            }
            stage.worker = next;
        }
        Some(plan)
    }

    /// The plan to begin with. A token visits one stage after the other, so a run that only writes texts has as few as hold
    /// the model.
    fn first_plan(&self, run: &RunSpec, measured: &[plan::Measured]) -> Result<Plan, plan::PlanError> {
        if let Some(plan) = self.same_cut(run, measured) {
            return Ok(plan);
        }
        let of = |stages| plan::make(run, stages, measured);
        let fewest = || (1..=measured.len() as u32).find_map(|count| of(Stages::Exactly(count)).ok());
        match (run.trains, self.stages) {
            (false, Stages::Auto) => fewest().map_or_else(|| of(Stages::Auto), Ok),
            (_, stages) => of(stages),
        }
    }

    /// Seconds a step takes now and would take with the best plan, if that is better by this factor.
    pub(super) fn better_by(&self, turn: &Turn<'_, Action>, gain: f64) -> Option<(f64, f64)> {
        let in_force = self.in_force.as_ref()?;
        let run = &turn.core.settings.run;
        let measured = turn.core.roster.measured(turn.now);
        let now = in_force.plan.replay(run, &measured)?.step_seconds;
        let best = plan::make(run, self.stages, &measured).ok()?;
        (best.predicted.step_seconds * gain < now).then_some((now, best.predicted.step_seconds))
    }

    /// The best plan, if it is still worth moving weights for.
    pub(super) fn better_plan(&self, turn: &Turn<'_, Action>) -> Option<Plan> {
        self.better_by(turn, REPLAN_GAIN)?;
        plan::make(&turn.core.settings.run, self.stages, &turn.core.roster.measured(turn.now)).ok()
    }

    /// After a step: has somebody become so slow or fast that the layers are better dealt anew?
    pub(super) fn look_for_drift(&mut self, turn: &Turn<'_, Action>) {
        let Some(in_force) = &self.in_force else { return };
        let drifted = turn.core.roster.paces().iter().any(|(worker, pace)| {
            let before = in_force.paces.get(worker).copied().unwrap_or(1.0);
            (pace / before).max(before / pace) > DRIFT
        });
        let left = turn.core.settings.steps.saturating_sub(self.steps_done) as f64;
        let worth = drifted
            && self
                .better_by(turn, DRIFT_GAIN)
                .is_some_and(|(now, best)| left * (now - best) > DRIFT_COST * now);
        self.drifting = if worth { self.drifting + 1 } else { 0 };
        if self.drifting >= DRIFT_STEPS {
            self.drifting = 0;
            self.replan = Some("the devices' speeds have changed".into());
        }
    }

    /// Asks spares to measure themselves again, once in a while.
    pub(super) fn measure_spares(&self, turn: &mut Turn<'_, Action>) {
        if turn.core.phase() != Phase::Training {
            return;
        }
        for worker in turn.core.roster.to_measure_again(turn.now, MEASURE_AGAIN) {
            if self.in_force.as_ref().is_some_and(|in_force| in_force.plan.stage(worker).is_some()) {
                continue;
            }
            turn.core.roster.asked_to_measure(worker, turn.now);
            turn.send(worker, Benchmark {});
        }
    }

    pub(super) fn put_in_force(&mut self, turn: &mut Turn<'_, Action>, plan: Plan, why: String) {
        let former = self.in_force.take();
        if former.is_none() {
            self.roll_back(turn);
        }
        self.epoch += 1;
        turn.core.started = true;
        self.replan = None;
        self.drifting = 0;
        self.progressed = turn.now;
        self.finding_owing = false;
        self.step_seconds.clear();
        self.collecting = None;
        self.texts_lost(turn);
        turn.core.settings.run.micro_batches = plan.micro_batches;
        let settings = &turn.core.settings;
        let mut relay =
            Relay::new(self.epoch, plan.holders.clone(), settings.run.clone(), settings.validation_batches);
        relay.verify_all = self.verify_all;
        relay.steps = settings.steps;
        turn.act(Action::Route(relay));
        // Workers whose stage is not renewed drop it.
        for worker in former.iter().flat_map(|former| former.plan.workers()) {
            if plan.stage(worker).is_none() && turn.core.roster.contains(worker) {
                turn.send(worker, Revoke { epoch: self.epoch - 1 });
            }
        }
        for stage in &plan.stages {
            let weights = match &self.snapshot {
                None => WeightSource::Seed(turn.core.settings.seed),
                Some(manifest) => WeightSource::Snapshot(manifest.blobs_for(&stage.hops)),
            };
            let assignment = Assignment {
                epoch: self.epoch,
                hops: stage.hops.clone(),
                hop_count: plan.holders.len() as u32,
                first_step: self.steps_done,
                micro_batches: plan.micro_batches,
                window: stage.window,
                weights,
            };
            turn.send(stage.worker, Assign(assignment));
        }
        turn.record(Record::PlanMade {
            epoch: self.epoch,
            first_step: self.steps_done,
            stages: plan.stages.iter().map(|s| (s.worker, s.hops.clone())).collect(),
            micro_batches: plan.micro_batches,
            why,
            predicted_step_seconds: plan.predicted.step_seconds,
            predicted_efficiency: plan.predicted.efficiency(),
        });
        let stages = plan.stages.len();
        let paces = turn.core.roster.paces();
        self.in_force = Some(InForce {
            plan,
            paces,
            verified: self.verify_all,
            has_stepped: false,
            activity: Activity::Loading(BTreeSet::new()),
        });
        let verb = if stages == 1 { "loads" } else { "load" };
        turn.enter(Phase::Loading, format!("{stages} worker{} {verb} the model", plural(stages)));
    }

    /// Ends the plan; the next one goes back to the last snapshot. The workers of this one are free.
    pub(super) fn discard_plan(&mut self, turn: &mut Turn<'_, Action>, why: String) {
        let Some(former) = self.in_force.take() else { return };
        self.served = Some(former.plan.clone());
        self.try_again = true;
        self.last_discard = Some(why.clone());
        turn.record(Record::StepDiscarded { epoch: self.epoch, step: self.steps_done, why });
        self.texts_lost(turn);
        turn.act(Action::Route(Relay::closed(self.epoch + 1)));
        for worker in former.plan.workers() {
            if turn.core.roster.contains(worker) {
                turn.send(worker, Revoke { epoch: self.epoch });
            }
        }
        // Frames and reports of the discarded plan carry its number, which is never used again.
        self.epoch += 1;
        self.collecting = None;
    }

    /// Back to the last snapshot that counts, or to the beginning.
    fn roll_back(&mut self, turn: &mut Turn<'_, Action>) {
        self.steps_done = self.snapshot.as_ref().map_or(0, |manifest| manifest.steps_done);
        turn.core.curve.cut_after(self.steps_done);
        // A point whose validation was still due is due again only if the weights are back at it.
        self.pending_point = self.pending_point.take().filter(|point| point.step == self.steps_done);
        // A snapshot that the disk has not taken is of work that is now done again.
        self.writing = None;
        self.snapshot_fault = None;
    }

    /// The worker that holds what is being loaded is ready.
    pub(super) fn ready(
        &mut self,
        turn: &mut Turn<'_, Action>,
        worker: WorkerId,
        epoch: u64,
    ) -> Result<(), protocol::refusal::Refusal> {
        // Others are of a plan that has ended meanwhile.
        if epoch == self.epoch
            && let Some(InForce { plan, activity: Activity::Loading(ready), .. }) = &mut self.in_force
            && plan.stage(worker).is_some()
        {
            ready.insert(worker);
            self.progressed = turn.now;
        }
        Ok(())
    }
}

pub(super) fn plural(n: usize) -> &'static str {
    if n == 1 { "" } else { "s" }
}
