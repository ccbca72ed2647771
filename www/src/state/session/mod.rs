//! This device's part in the run: what the Web Worker reports, folded into one state.

mod stage;
mod work;

use protocol::{
    message::Profile,
    spec::{Hop, RunSpec},
    tab::{BackendFinding, SessionEvent},
};

pub(crate) use self::{
    stage::Stage,
    work::{Progress, Round, Rounds, Work},
};

/// Seconds in which somebody can cancel joining again.
const REJOIN_AFTER: f64 = 6.0;

/// This device's part in the run.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Session {
    /// What it is doing.
    pub(crate) stage: Stage,
    /// What the worker found on this device; empty before it has looked.
    pub(crate) backends: Vec<BackendFinding>,
    /// Its number at the coordinator.
    pub(crate) worker: Option<u64>,
    /// What it was told of the run.
    pub(crate) run: Option<RunSpec>,
    /// What it measured of itself.
    pub(crate) profile: Option<Profile>,
    /// Its positions in the pipeline.
    pub(crate) hops: Vec<Hop>,
    /// Pipeline mode: what it has done.
    pub(crate) work: Option<Work>,
    /// Block mode: the round in progress, or the last one while the next is awaited.
    pub(crate) round: Option<Round>,
    /// Block mode: what it has done.
    pub(crate) rounds: Rounds,
    /// Block mode: evaluating the weights after so many rounds.
    pub(crate) evaluating: Option<u64>,
    /// When the present stage began, in seconds of the page's clock.
    pub(crate) since: f64,
    /// When an event last proved that the coordinator answers this device.
    pub(crate) answered: Option<f64>,
}

impl Session {
    /// The state at the moment somebody presses the button.
    pub(crate) fn starting(&self, now: f64) -> Self {
        Session { stage: Stage::Starting, backends: self.backends.clone(), since: now, ..Session::default() }
    }

    /// Whether this device has done anything that counts.
    pub(crate) fn took_part(&self) -> bool {
        self.work.is_some() || self.rounds.sent > 0 || matches!(self.stage, Stage::Over(_))
    }

    /// Takes in what the Web Worker reports at `now`, in seconds of the page's clock.
    pub(crate) fn apply(&mut self, event: SessionEvent, now: f64) {
        let before = std::mem::discriminant(&self.stage);
        if is_answer(&event) {
            self.answered = Some(now);
        }
        self.fold(event, now);
        if before != std::mem::discriminant(&self.stage) {
            self.since = now;
        }
    }

    /// The page was reloaded while this device took part.
    pub(crate) fn rejoin(&mut self, now: f64) {
        self.stage = Stage::Rejoining { at: now + REJOIN_AFTER };
    }

    /// Somebody does not want to join again.
    pub(crate) fn cancel(&mut self) {
        if matches!(self.stage, Stage::Rejoining { .. }) {
            self.stage = Stage::Idle;
        }
    }

    /// Whether the page should remember that this device takes part; None: as before.
    pub(crate) fn takes_part(&self) -> Option<bool> {
        match self.stage {
            Stage::Idle | Stage::Rejoining { .. } | Stage::Crashed(_) | Stage::Unloadable => None,
            _ => Some(self.stage.is_active() && self.stage != Stage::Stopping),
        }
    }

    /// Somebody pressed Stop.
    pub(crate) fn stop(&mut self, now: f64) {
        (self.stage, self.since) = (Stage::Stopping, now);
    }

    fn fold(&mut self, event: SessionEvent, now: f64) {
        match event {
            SessionEvent::Backends { found } => self.backends = found,
            SessionEvent::Connecting => self.enter(Stage::Connecting),
            SessionEvent::Welcomed { worker, run } => {
                self.worker = Some(worker);
                self.run = Some(run);
            }
            SessionEvent::Benchmarking => self.enter(Stage::Benchmarking),
            SessionEvent::Profiled { profile } => {
                self.profile = Some(profile);
                self.enter(Stage::Measured);
            }
            SessionEvent::Spare => {
                self.put_down();
                self.enter(Stage::Spare);
            }
            SessionEvent::Loading { hops, .. } => {
                self.hops = hops;
                self.enter(Stage::Loading);
            }
            SessionEvent::Training { hops, .. } | SessionEvent::Serving { hops, .. } => {
                self.hops = hops;
                self.enter(Stage::Training);
            }
            SessionEvent::Step { step, micro_batches, timings, loss, bytes_sent, bytes_received } => {
                let (steps, sum) = self.work.as_ref().map_or((0, 0), |work| (work.steps, work.micro_batches));
                self.work = Some(Work {
                    step,
                    timings,
                    loss,
                    steps: steps + 1,
                    micro_batches: sum + u64::from(micro_batches),
                    bytes_sent,
                    bytes_received,
                });
            }
            SessionEvent::Reconnecting { in_seconds, reason } => {
                self.put_down();
                self.enter(Stage::Reconnecting { at: now + in_seconds, reason });
            }
            SessionEvent::Over { reason } => self.end(Stage::Over(reason)),
            SessionEvent::Refused { words } => self.end(Stage::Refused(words)),
            SessionEvent::Failed { words } => self.end(Stage::Failed(words)),
            SessionEvent::Left => self.end(Stage::Left),
            SessionEvent::BlockLoading { round, block } => {
                self.evaluating = None;
                // From round to round the stage stays Training; only the first one is shown as loading.
                let at_work = self.round.as_ref().is_some_and(|before| before.block == block);
                self.enter(if at_work { Stage::Training } else { Stage::Loading });
                self.round =
                    Some(Round { number: round, block, progress: Progress::Fetching, cross_entropy: None });
            }
            SessionEvent::LocalStep { round, block, step, steps, cross_entropy } => {
                self.evaluating = None;
                self.round = Some(Round {
                    number: round,
                    block,
                    progress: Progress::Training { step, steps },
                    cross_entropy: Some(cross_entropy),
                });
                self.enter(Stage::Training);
            }
            SessionEvent::DeltaSent { round, block, timings, bytes_sent, bytes_received } => {
                let cross_entropy = self.round.as_ref().and_then(|round| round.cross_entropy);
                self.round = Some(Round { number: round, block, progress: Progress::Sent, cross_entropy });
                self.rounds.sent += 1;
                self.rounds.timings = Some(timings);
                (self.rounds.bytes_sent, self.rounds.bytes_received) = (bytes_sent, bytes_received);
                self.enter(Stage::Training);
            }
            SessionEvent::DeltaOutcome { round, refused } => {
                let progress = if refused.is_some() { Progress::Refused } else { Progress::Accepted };
                // An accepted delta may still be refused when it is compared with those of the other devices.
                if let Some(now) = self.round.as_mut().filter(|now| now.number == round) {
                    if now.progress == Progress::Accepted && progress == Progress::Refused {
                        self.rounds.accepted = self.rounds.accepted.saturating_sub(1);
                    }
                    now.progress = progress;
                }
                match refused {
                    None => self.rounds.accepted += 1,
                    Some(words) => {
                        self.rounds.refused += 1;
                        self.rounds.refusal = Some((round, words));
                    }
                }
            }
            SessionEvent::Evaluating { round } => {
                self.evaluating = Some(round);
                if self.round.is_none() {
                    self.enter(Stage::Evaluating);
                }
            }
            // The page never asks for it.
            SessionEvent::Benched { .. } => {}
        }
    }

    /// The Web Worker is gone without a word of its own.
    pub(crate) fn lost_worker(&mut self, words: String, now: f64) {
        self.since = now;
        match self.stage {
            _ if !self.stage.is_active() => {}
            Stage::Starting => self.end(Stage::Unloadable),
            Stage::Stopping => self.end(Stage::Left),
            _ => self.end(Stage::Crashed(words)),
        }
    }

    /// Events that were on their way when somebody pressed Stop must not bring an earlier stage back.
    fn enter(&mut self, stage: Stage) {
        if self.stage != Stage::Stopping {
            self.stage = stage;
        }
    }

    fn end(&mut self, stage: Stage) {
        self.put_down();
        self.stage = stage;
    }

    /// This device holds no part of the model any more.
    fn put_down(&mut self) {
        self.hops.clear();
        self.round = None;
        self.evaluating = None;
    }
}

/// Whether the event can only follow from something that the coordinator sent.
fn is_answer(event: &SessionEvent) -> bool {
    use SessionEvent::{BlockLoading, DeltaOutcome, DeltaSent, Evaluating, Loading, Spare, Step, Welcomed};
    matches!(
        event,
        Welcomed { .. }
            | Spare
            | Loading { .. }
            | Step { .. }
            | BlockLoading { .. }
            | DeltaSent { .. }
            | DeltaOutcome { .. }
            | Evaluating { .. }
    )
}

#[cfg(test)]
mod tests;
