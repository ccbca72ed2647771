//! This device's part in the run, as the page sees it: what the Web Worker reports, folded into one state.
//! No browser in here.

use protocol::{
    message::{DrainReason, Profile, Timings},
    spec::{Hop, RunSpec},
    tab::{BackendFinding, SessionEvent},
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
                self.hops.clear();
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
                self.hops.clear();
                self.enter(Stage::Reconnecting { in_seconds, reason });
            }
            SessionEvent::Over { reason } => self.end(Stage::Over(reason)),
            SessionEvent::Refused { words } => self.end(Stage::Refused(words)),
            SessionEvent::Failed { words } => self.end(Stage::Failed(words)),
            SessionEvent::Left => self.end(Stage::Left),
            SessionEvent::BlockLoading { .. }
            | SessionEvent::LocalStep { .. }
            | SessionEvent::DeltaSent { .. }
            | SessionEvent::Judged { .. }
            | SessionEvent::Evaluating { .. } => {}
            // The page never asks for it.
            SessionEvent::Benched { .. } => {}
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
        self.hops.clear();
        self.stage = stage;
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
}
