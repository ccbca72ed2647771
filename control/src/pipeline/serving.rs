//! Texts that the workers of the plan write: which hop computes the traversal under way, and when the next may begin.
//!
//! ```text
//! asked --> under way at hop 0 --> hop 1 --> ... --> last hop --> traversed
//!   ^            |
//!   +------------+  the plan ends: whoever asked rebuilds the caches and asks again
//! ```
//!
//! In a run that trains, a traversal takes time from the stages' own work. The next one waits until the busiest stage has
//! had it back: of any stretch of time, texts take at most `share`.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use protocol::{
    limits,
    message::{CloseTexts, Decoded, Traversal},
    refusal::Refusal,
    view::Phase,
    worker_id::WorkerId,
};

use super::{Action, Activity, Asking, InForce, Pipeline, planning::plural};
use crate::core::Turn;

/// A hop may take so long before its worker is replaced: a device may have to compile its shaders, or a tab be slowed
/// down by its browser ...
const PATIENCE: Duration = Duration::from_secs(30);
/// ... and in a run that trains, so many times as long as the longest of the last steps.
const TIMES_LONGEST: f64 = 6.0;

/// The state of texts that the workers write.
#[derive(Debug, Clone, Default)]
pub(super) struct Texts {
    /// The newest traversal that was asked for.
    traversal: Option<Open>,
    /// The next traversal may not begin before.
    not_before: Duration,
    /// The workers can be asked: they hold the weights of this step.
    held: Option<u64>,
}

#[derive(Debug, Clone)]
struct Open {
    number: u64,
    /// The hop that computes, and since when; None before it has begun.
    at: Option<(u32, Duration)>,
    /// Seconds that each worker has computed.
    seconds: BTreeMap<WorkerId, f64>,
}

impl Pipeline {
    /// A traversal is wanted; the one before is not wanted any more.
    pub(super) fn traversal_wanted(&mut self, number: u64) {
        self.texts.traversal = Some(Open { number, at: None, seconds: BTreeMap::new() });
    }

    /// A traversal that was begun is not wanted any more.
    pub(super) fn traversal_gone(&mut self, number: u64) {
        self.texts.traversal.take_if(|open| open.number == number);
    }

    /// Texts have ended: whoever holds caches of them may drop them.
    pub(super) fn texts_ended(&self, turn: &mut Turn<'_, Action>, texts: &[u64]) {
        let Some(in_force) = &self.in_force else { return };
        for worker in in_force.plan.workers() {
            for texts in texts.chunks(limits::TEXTS) {
                turn.send(worker, CloseTexts { epoch: self.epoch, texts: texts.to_vec() });
            }
        }
    }

    /// Whether the stages of the plan in force hold their weights.
    fn is_loaded(&self) -> bool {
        self.in_force.as_ref().is_some_and(|in_force| !matches!(in_force.activity, Activity::Loading(_)))
    }

    /// Begins the traversal that is wanted if it may begin now, and says when the model can or cannot be asked.
    pub(super) fn serve(&mut self, turn: &mut Turn<'_, Action>) {
        if turn.core.settings.run.cache_bytes == 0 {
            return;
        }
        // A run that trains goes on writing texts while it is paused.
        let paused = turn.core.paused && !turn.core.settings.run.trains;
        let held = (self.is_loaded() && !paused).then_some(self.steps_done);
        if self.texts.held != held {
            self.texts.held = held;
            turn.act(Action::Texts(held.map_or(Asking::Nobody, Asking::Step)));
        }
        if held.is_none() || turn.now < self.texts.not_before {
            return;
        }
        let Some(Open { number, at: at @ None, .. }) = &mut self.texts.traversal else { return };
        *at = Some((0, turn.now));
        let of = Traversal { epoch: self.epoch, number: *number, hop: 0 };
        if let Some(InForce { plan, .. }) = &self.in_force
            && let Some(worker) = plan.first()
        {
            turn.act(Action::Decode { worker, of, last: plan.holders.len() == 1 });
        }
    }

    /// A hop has answered: its rows are in the coordinator's hands.
    ///
    /// # Errors
    /// An answer that nobody has asked this worker for.
    pub(super) fn decoded(
        &mut self,
        turn: &mut Turn<'_, Action>,
        worker: WorkerId,
        decoded: &Decoded,
    ) -> Result<(), Refusal> {
        let Traversal { epoch, number, hop } = decoded.of;
        if epoch < self.epoch || turn.core.over.is_some() {
            return Ok(()); // of a plan that has ended meanwhile
        }
        let refuse =
            |detail: &str| Err(Refusal::NotInPlan { message: "Decoded".into(), detail: detail.into() });
        if epoch > self.epoch {
            return refuse("that plan is not made yet");
        }
        let Some(InForce { plan, .. }) = &self.in_force else { return refuse("no plan is in force") };
        if plan.holders.get(hop as usize) != Some(&worker) {
            return refuse("this worker does not hold that hop");
        }
        let Some(open) = self.texts.traversal.as_mut() else { return refuse("no traversal was asked for") };
        if number < open.number {
            return Ok(()); // of one that nobody wants any more
        }
        match open.at {
            Some((at, _)) if (number, hop) == (open.number, at) => {}
            _ => return refuse("that hop of that traversal was not asked for"),
        }
        *open.seconds.entry(worker).or_default() += decoded.seconds;
        let next = hop + 1;
        match plan.holders.get(next as usize) {
            Some(&worker) => {
                open.at = Some((next, turn.now));
                let last = next as usize + 1 == plan.holders.len();
                turn.act(Action::Decode { worker, of: Traversal { epoch, number, hop: next }, last });
            }
            None => {
                let settings = &turn.core.settings;
                if settings.run.trains {
                    let longest = open.seconds.values().copied().fold(0.0, f64::max);
                    let rest = longest * (1.0 - settings.texts_share) / settings.texts_share;
                    let rest = Duration::try_from_secs_f64(rest).unwrap_or(Duration::ZERO);
                    self.texts.not_before = turn.now.saturating_add(rest);
                }
                self.texts.traversal = None;
                turn.act(Action::Traversed { number });
            }
        }
        Ok(())
    }

    /// The plan has ended, and with it all caches: a traversal under way comes to nothing.
    pub(super) fn texts_lost(&mut self, turn: &mut Turn<'_, Action>) {
        if turn.core.settings.run.cache_bytes == 0 {
            return;
        }
        self.texts.traversal = None;
        turn.act(Action::CachesLost);
        if self.texts.held.take().is_some() {
            turn.act(Action::Texts(Asking::Nobody));
        }
    }

    /// The run has ended.
    pub(super) fn texts_over(&mut self, turn: &mut Turn<'_, Action>) {
        if turn.core.settings.run.cache_bytes > 0 {
            self.texts_lost(turn);
            turn.act(Action::Texts(Asking::Over));
        }
    }

    /// When the traversal that waits may begin.
    pub(super) fn texts_wake_at(&self) -> Option<Duration> {
        let waits = matches!(&self.texts.traversal, Some(Open { at: None, .. }));
        (waits && self.texts.held.is_some()).then_some(self.texts.not_before)
    }

    /// A run that only writes texts, with its stages loaded.
    pub(super) fn only_serve(&self, turn: &mut Turn<'_, Action>) {
        let workers: BTreeSet<WorkerId> =
            self.in_force.iter().flat_map(|in_force| in_force.plan.workers()).collect();
        let (n, s) = (workers.len(), plural(workers.len()));
        turn.enter(Phase::Serving, format!("the model is on {n} worker{s} and can be asked"));
    }

    /// Whoever does not answer a traversal is replaced.
    pub(super) fn look_for_silent_hop(&mut self, turn: &mut Turn<'_, Action>) {
        let Some(Open { at: Some((hop, since)), .. }) = &self.texts.traversal else { return };
        let waited = turn.now.saturating_sub(*since);
        let longest = self.step_seconds.iter().copied().fold(0.0, f64::max);
        let steps = Duration::try_from_secs_f64(TIMES_LONGEST * longest).unwrap_or(Duration::MAX);
        if waited <= PATIENCE.max(steps).min(turn.core.settings.step_deadline) {
            return;
        }
        let Some(InForce { plan, .. }) = &self.in_force else { return };
        let Some(&worker) = plan.holders.get(*hop as usize) else { return };
        let words = format!("nothing came of {worker} for {} s", waited.as_secs());
        turn.suspend(worker, "stalled", &words);
        self.discard_plan(turn, words);
    }
}
