//! This device's part in the run, as the page sees it: what the Web Worker reports, folded into one state.
//! No browser in here.

use protocol::{
    message::{DrainReason, Profile, Timings},
    spec::{Hop, RunSpec},
    tab::{BackendFinding, SessionEvent},
    view::Phase,
};

/// What the device is doing.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Stage {
    /// Nobody pressed the button yet.
    #[default]
    Idle,
    /// The Web Worker loads its program.
    Starting,
    Connecting,
    Benchmarking,
    /// Measured; the coordinator works out a plan.
    Measured,
    Spare,
    Loading,
    Training,
    /// Block mode: measuring the whole model, without a part in a round so far.
    Measuring,
    Reconnecting {
        in_seconds: f64,
        reason: String,
    },
    Stopping,
    Left,
    Over(DrainReason),
    Refused(String),
    Failed(String),
    /// The Web Worker died.
    Crashed(String),
    /// The Web Worker's program did not load.
    Unloadable,
}

impl Stage {
    /// Name for style sheets and tests.
    pub fn name(&self) -> &'static str {
        match self {
            Stage::Idle => "idle",
            Stage::Starting => "starting",
            Stage::Connecting => "connecting",
            Stage::Benchmarking => "benchmarking",
            Stage::Measured => "measured",
            Stage::Spare => "spare",
            Stage::Loading => "loading",
            Stage::Training => "training",
            Stage::Measuring => "measuring",
            Stage::Reconnecting { .. } => "reconnecting",
            Stage::Stopping => "stopping",
            Stage::Left => "left",
            Stage::Over(_) => "over",
            Stage::Refused(_) => "refused",
            Stage::Failed(_) => "failed",
            Stage::Crashed(_) => "crashed",
            Stage::Unloadable => "unloadable",
        }
    }

    /// Whether a Web Worker is at work for this page.
    pub fn is_active(&self) -> bool {
        !matches!(
            self,
            Stage::Idle
                | Stage::Left
                | Stage::Over(_)
                | Stage::Refused(_)
                | Stage::Failed(_)
                | Stage::Crashed(_)
                | Stage::Unloadable
        )
    }
}

/// The last step this device finished, and sums over all of them.
#[derive(Debug, Clone, PartialEq)]
pub struct Work {
    pub step: u64,
    pub timings: Timings,
    pub loss: Option<f64>,
    pub steps: u64,
    pub micro_batches: u64,
    pub bytes_sent: u64,
    pub bytes_received: u64,
}

/// How far a round of block mode is on this device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Fetching the block as it is now.
    Fetching,
    /// Local steps done, of so many.
    Learning {
        step: u32,
        steps: u32,
    },
    /// What was learned is with the coordinator, which has not said a word yet.
    Sent,
    Accepted,
    Refused,
}

/// A round of block mode.
#[derive(Debug, Clone, PartialEq)]
pub struct Round {
    /// From 0, as on the wire.
    pub number: u64,
    pub block: u32,
    pub progress: Progress,
    /// Leaky: see [`SessionEvent::LocalStep`].
    pub cross_entropy: Option<f64>,
}

/// What came of this device's rounds since the button was pressed.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Rounds {
    /// Sent in time or not.
    pub sent: u64,
    pub accepted: u64,
    pub refused: u64,
    /// The last refusal: number of the round and why.
    pub refusal: Option<(u64, String)>,
    /// Times of the last round that was sent.
    pub timings: Option<Timings>,
    pub bytes_sent: u64,
    pub bytes_received: u64,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Session {
    pub stage: Stage,
    /// What the worker found on this device; empty before it has looked.
    pub backends: Vec<BackendFinding>,
    pub worker: Option<u64>,
    pub run: Option<RunSpec>,
    pub profile: Option<Profile>,
    /// What this device holds.
    pub hops: Vec<Hop>,
    pub work: Option<Work>,
    /// Block mode: the round under way, or the last one while the next is awaited.
    pub round: Option<Round>,
    pub rounds: Rounds,
    /// Block mode: measuring the weights after so many rounds.
    pub measuring: Option<u64>,
}

impl Session {
    /// The state at the moment somebody presses the button.
    pub fn starting(&self) -> Self {
        Session { stage: Stage::Starting, backends: self.backends.clone(), ..Session::default() }
    }

    pub fn apply(&mut self, event: SessionEvent) {
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
            SessionEvent::Training { hops, .. } => {
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
                self.enter(Stage::Reconnecting { in_seconds, reason });
            }
            SessionEvent::Over { reason } => self.end(Stage::Over(reason)),
            SessionEvent::Refused { words } => self.end(Stage::Refused(words)),
            SessionEvent::Failed { words } => self.end(Stage::Failed(words)),
            SessionEvent::Left => self.end(Stage::Left),
            SessionEvent::BlockLoading { round, block } => {
                self.measuring = None;
                // The words for a device at work stay from round to round; only the first one is worth others.
                let at_work = self.round.as_ref().is_some_and(|before| before.block == block);
                self.enter(if at_work { Stage::Training } else { Stage::Loading });
                self.round =
                    Some(Round { number: round, block, progress: Progress::Fetching, cross_entropy: None });
            }
            SessionEvent::LocalStep { round, block, step, steps, cross_entropy } => {
                self.measuring = None;
                self.round = Some(Round {
                    number: round,
                    block,
                    progress: Progress::Learning { step, steps },
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
            SessionEvent::Judged { round, refused } => {
                let progress = if refused.is_some() { Progress::Refused } else { Progress::Accepted };
                // An accepted delta can still turn out to be out of place beside the others'.
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
                self.measuring = Some(round);
                if self.round.is_none() {
                    self.enter(Stage::Measuring);
                }
            }
            // The page never asks for it.
            SessionEvent::Benched { .. } => {}
        }
    }

    /// The state to show. A device whose round is done hears nothing of it when no other follows; the page does.
    pub fn shown(&self, phase: Option<Phase>) -> Stage {
        let judged = self
            .round
            .as_ref()
            .is_some_and(|round| matches!(round.progress, Progress::Accepted | Progress::Refused));
        match (&self.stage, phase) {
            (Stage::Training | Stage::Measuring, Some(Phase::Paused | Phase::Waiting))
                if judged || self.stage == Stage::Measuring =>
            {
                Stage::Spare
            }
            (stage, _) => stage.clone(),
        }
    }

    /// The Web Worker is gone without a word of its own.
    pub fn lost_worker(&mut self, words: String) {
        match self.stage {
            _ if !self.stage.is_active() => {}
            Stage::Starting => self.end(Stage::Unloadable),
            Stage::Stopping => self.end(Stage::Left),
            _ => self.end(Stage::Crashed(words)),
        }
    }

    /// What was under way when somebody pressed Stop must not bring the old words back.
    fn enter(&mut self, stage: Stage) {
        if self.stage != Stage::Stopping {
            self.stage = stage;
        }
    }

    fn end(&mut self, stage: Stage) {
        self.put_down();
        self.stage = stage;
    }

    /// Nothing of the model is in this device's hands any more.
    fn put_down(&mut self) {
        self.hops.clear();
        self.round = None;
        self.measuring = None;
    }
}

#[cfg(test)]
mod tests {
    use protocol::spec::Part;

    use super::*;

    fn step(step: u64) -> SessionEvent {
        SessionEvent::Step {
            step,
            micro_batches: 4,
            timings: Timings::default(),
            loss: None,
            bytes_sent: step * 10,
            bytes_received: step * 20,
        }
    }

    fn hops() -> Vec<Hop> {
        vec![Hop { index: 1, part: Part { embedding: false, first_layer: 2, end_layer: 4, head: true } }]
    }

    #[test]
    fn work_adds_up_over_plans() {
        let mut session = Session::default().starting();
        session.apply(SessionEvent::Connecting);
        session.apply(SessionEvent::Training { epoch: 1, hops: hops() });
        session.apply(step(1));
        session.apply(SessionEvent::Reconnecting { in_seconds: 1.0, reason: "gone".into() });
        assert!(session.hops.is_empty());
        session.apply(SessionEvent::Training { epoch: 2, hops: hops() });
        session.apply(step(2));
        let work = session.work.as_ref().unwrap();
        assert_eq!((work.step, work.steps, work.micro_batches, work.bytes_sent), (2, 2, 8, 20));
        assert!(session.stage.is_active());
    }

    #[test]
    fn stopping_stays_until_the_worker_has_left() {
        let mut session = Session { stage: Stage::Stopping, ..Session::default() };
        session.apply(SessionEvent::Training { epoch: 1, hops: hops() });
        assert_eq!(session.stage, Stage::Stopping);
        session.apply(SessionEvent::Left);
        assert_eq!(session.stage, Stage::Left);
        assert!(!session.stage.is_active());
    }

    #[test]
    fn a_dead_worker_means_what_the_moment_says() {
        let ends = |stage| {
            let mut session = Session { stage, ..Session::default() };
            session.lost_worker("unreachable".into());
            session.stage
        };
        assert_eq!(ends(Stage::Starting), Stage::Unloadable);
        assert_eq!(ends(Stage::Stopping), Stage::Left);
        assert_eq!(ends(Stage::Training), Stage::Crashed("unreachable".into()));
    }

    fn sent(round: u64) -> SessionEvent {
        SessionEvent::DeltaSent {
            round,
            block: 1,
            timings: Timings { forward: 1.0, backward: 2.0, receive: 0.5, send: 0.25, ..Timings::default() },
            bytes_sent: 100 * (round + 1),
            bytes_received: 300 * (round + 1),
        }
    }

    fn local_step(round: u64, step: u32) -> SessionEvent {
        SessionEvent::LocalStep { round, block: 1, step, steps: 10, cross_entropy: 3.5 }
    }

    fn progress(session: &Session) -> Progress {
        session.round.as_ref().unwrap().progress
    }

    #[test]
    fn a_whole_round_and_the_next_without_a_change_of_words() {
        let mut session = Session::default().starting();
        session.apply(SessionEvent::Spare);
        session.apply(SessionEvent::BlockLoading { round: 0, block: 1 });
        assert_eq!((session.stage.name(), progress(&session)), ("loading", Progress::Fetching));
        session.apply(local_step(0, 1));
        assert_eq!(session.stage.name(), "training");
        assert_eq!(progress(&session), Progress::Learning { step: 1, steps: 10 });
        session.apply(sent(0));
        assert_eq!((session.stage.name(), progress(&session)), ("training", Progress::Sent));
        assert_eq!(session.round.as_ref().unwrap().cross_entropy, Some(3.5));
        session.apply(SessionEvent::Judged { round: 0, refused: None });
        assert_eq!((session.stage.name(), progress(&session)), ("training", Progress::Accepted));
        session.apply(SessionEvent::Evaluating { round: 1 });
        assert_eq!((session.stage.name(), session.measuring), ("training", Some(1)));
        session.apply(SessionEvent::BlockLoading { round: 1, block: 1 });
        assert_eq!((session.stage.name(), session.measuring), ("training", None));
        session.apply(local_step(1, 1));
        session.apply(sent(1));
        session.apply(SessionEvent::Judged { round: 1, refused: None });
        let rounds = &session.rounds;
        assert_eq!((rounds.sent, rounds.accepted, rounds.refused), (2, 2, 0));
        assert_eq!((rounds.bytes_sent, rounds.bytes_received), (200, 600));
        assert_eq!(rounds.timings.unwrap().busy(), 3.0);
    }

    #[test]
    fn a_refused_delta_tells_why_and_keeps_telling() {
        let mut session = Session::default().starting();
        session.apply(local_step(4, 10));
        session.apply(sent(4));
        session.apply(SessionEvent::Judged { round: 4, refused: Some("it is all zeros".into()) });
        assert_eq!(progress(&session), Progress::Refused);
        session.apply(local_step(5, 10));
        session.apply(sent(5));
        session.apply(SessionEvent::Judged { round: 5, refused: None });
        assert_eq!((session.rounds.accepted, session.rounds.refused), (1, 1));
        assert_eq!(session.rounds.refusal, Some((4, "it is all zeros".into())));
        // Late words about an old round change nothing of the one under way.
        session.apply(local_step(6, 2));
        session.apply(SessionEvent::Judged { round: 5, refused: Some("too long".into()) });
        assert_eq!(progress(&session), Progress::Learning { step: 2, steps: 10 });
    }

    #[test]
    fn an_accepted_delta_that_is_dropped_after_all_is_not_counted_twice() {
        let mut session = Session::default().starting();
        session.apply(sent(0));
        session.apply(SessionEvent::Judged { round: 0, refused: None });
        session.apply(SessionEvent::Judged {
            round: 0,
            refused: Some("its length is 9 times the others'".into()),
        });
        assert_eq!((session.rounds.accepted, session.rounds.refused), (0, 1));
    }

    #[test]
    fn a_lost_connection_drops_the_round_and_keeps_what_was_done() {
        let mut session = Session::default().starting();
        session.apply(local_step(0, 10));
        session.apply(sent(0));
        session.apply(SessionEvent::Judged { round: 0, refused: None });
        session.apply(local_step(1, 3));
        session.apply(SessionEvent::Reconnecting { in_seconds: 1.0, reason: "gone".into() });
        assert_eq!((session.stage.name(), session.round.is_none()), ("reconnecting", true));
        session.apply(SessionEvent::Connecting);
        session.apply(SessionEvent::BlockLoading { round: 3, block: 0 });
        assert_eq!((session.stage.name(), session.rounds.accepted), ("loading", 1));
        session.apply(SessionEvent::LocalStep { round: 3, block: 0, step: 1, steps: 10, cross_entropy: 3.0 });
        assert_eq!(session.stage.name(), "training");
    }

    #[test]
    fn a_paused_run_shows_a_device_that_waits() {
        let mut session = Session::default().starting();
        session.apply(local_step(0, 10));
        session.apply(sent(0));
        assert_eq!(session.shown(Some(Phase::Paused)), Stage::Training);
        session.apply(SessionEvent::Judged { round: 0, refused: None });
        assert_eq!(session.shown(Some(Phase::Training)), Stage::Training);
        assert_eq!(session.shown(Some(Phase::Paused)), Stage::Spare);
        session.apply(SessionEvent::Spare);
        session.apply(SessionEvent::Evaluating { round: 1 });
        assert_eq!(session.shown(Some(Phase::Training)), Stage::Measuring);
    }
}
