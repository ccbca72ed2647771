//! A plan of which nothing comes: how long to wait is learned from the steps, and who owes the next result is replaced.

use std::time::Duration;

use protocol::worker_id::WorkerId;

use super::{Action, Activity, InForce, Pipeline};
use crate::core::Turn;

/// A step may take so many times as long as the longest of the last ones ...
const TIMES_LONGEST: f64 = 6.0;
/// ... and before there are any, so many times as long as the plan predicts, ...
const TIMES_PREDICTED: f64 = 20.0;
/// ... but always so many seconds: a device may have to compile its shaders, or a tab its program.
const LEAST_SECONDS: f64 = 20.0;
/// The same before the first step is done.
const LEAST_FIRST_SECONDS: f64 = 60.0;
/// Bytes a second at which weights arrive over a slow phone's link, where none was measured.
const SLOW_LINK: f64 = 50e3;
/// Loading a stage, or storing its part of a snapshot, may take so many times as long as its bytes take over the link.
const TIMES_TRANSFER: f64 = 4.0;

impl Pipeline {
    /// How long the plan in force may show nothing.
    fn patience(&self, turn: &Turn<'_, Action>) -> Option<Duration> {
        let in_force = self.in_force.as_ref()?;
        let seconds = match &in_force.activity {
            // Only the last part of a snapshot can be missing then.
            Activity::Holding if self.collecting.is_none() => return None,
            Activity::Holding | Activity::Loading(_) => {
                let stage = |stage: &super::plan::Stage| {
                    let link = turn.core.roster.get(stage.worker)?.profile()?.link;
                    let rate = link.map_or(SLOW_LINK, |link| link.down.min(link.up));
                    Some(stage.memory_bytes as f64 / rate.max(1.0))
                };
                let longest = in_force.plan.stages.iter().filter_map(stage).fold(0.0, f64::max);
                LEAST_FIRST_SECONDS + TIMES_TRANSFER * longest
            }
            Activity::Stepping(_) => {
                let longest = self.step_seconds.iter().copied().fold(0.0, f64::max);
                let predicted = in_force.plan.predicted.step_seconds;
                match self.step_seconds.is_empty() {
                    true => (TIMES_PREDICTED * predicted).max(LEAST_FIRST_SECONDS),
                    false => (TIMES_LONGEST * longest).max(LEAST_SECONDS),
                }
            }
        };
        let most = turn.core.settings.step_deadline;
        Some(Duration::try_from_secs_f64(seconds).map_or(most, |learned| learned.min(most)))
    }

    /// Whether nothing has come for too long; then the relay is asked whose turn it is.
    pub(super) fn look_for_stall(&mut self, turn: &mut Turn<'_, Action>) {
        // In a pause nothing is waited for, unless the organizer wants the run to end with a snapshot.
        let waits = turn.core.held().is_none() || turn.core.stopping;
        if waits && !self.finding_owing && self.is_stalled(turn) {
            self.finding_owing = true;
            turn.act(Action::FindOwing);
        }
    }

    fn is_stalled(&self, turn: &Turn<'_, Action>) -> bool {
        self.patience(turn).is_some_and(|patience| turn.now.saturating_sub(self.progressed) > patience)
    }

    /// The relay says whose turn it is.
    pub(super) fn owing(&mut self, turn: &mut Turn<'_, Action>, found: Option<WorkerId>) {
        // Something may have come while the relay was asked.
        if !std::mem::take(&mut self.finding_owing) || !self.is_stalled(turn) {
            return;
        }
        let Some(InForce { plan, activity, .. }) = &self.in_force else { return };
        let owing = match activity {
            Activity::Holding => self.collecting.as_ref().and_then(|collecting| collecting.missing()),
            Activity::Loading(ready) => plan.workers().into_iter().find(|worker| !ready.contains(worker)),
            Activity::Stepping(step) => {
                found.filter(|worker| plan.stage(*worker).is_some()).or(step.missing()).or(plan.last())
            }
        };
        let seconds = turn.now.saturating_sub(self.progressed).as_secs();
        let words = match owing {
            Some(worker) => format!("nothing came of {worker} for {seconds} s"),
            None => format!("nothing came of the plan for {seconds} s"),
        };
        if let Some(worker) = owing {
            turn.suspend(worker, "stalled", &words);
        }
        self.discard_plan(turn, words);
    }
}
