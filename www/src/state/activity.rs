//! What a device is doing: one decision from its role, the phase of the run and the link, for the volunteer's card, the
//! tab's title and the table of devices alike.

use protocol::view::{Phase, WorkerState, WorkerView};

use super::{
    facts::is_over,
    link::{Link, SILENT_AFTER},
    session::{Session, Stage},
};

/// Silence of a device that is shown in its place, in seconds. Heartbeats usually come every 5 s, so that a sound
/// device may be silent for that long.
pub(crate) const DEVICE_SILENT_AFTER: f64 = 8.0;

/// Seconds after which loading the program or connecting takes longer than it usually does.
const SLOW_AFTER: f64 = 20.0;

/// Seconds after which loading the program is given up.
pub(crate) const LOADING_LIMIT: f64 = 180.0;

/// A device's part in a run, as its own tab or the coordinator tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Benchmarking,
    /// Measured, without a part of the model.
    Spare,
    Loading,
    Training,
    Evaluating,
}

impl From<WorkerState> for Role {
    fn from(state: WorkerState) -> Self {
        match state {
            WorkerState::Benchmarking => Role::Benchmarking,
            WorkerState::Spare => Role::Spare,
            WorkerState::Loading => Role::Loading,
            WorkerState::Training | WorkerState::Serving => Role::Training,
        }
    }
}

/// What a device in a run is shown as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Status {
    /// The run has done its last step.
    Finished,
    /// The run was stopped.
    Stopped,
    /// Nothing was heard for a while, so that nobody knows.
    Silent,
    /// The run is paused, and the device with it.
    Paused,
    /// Measured; the run has not begun, or waits for more devices.
    Waiting,
    Benchmarking,
    /// The run is at work without this device.
    Spare,
    Loading,
    /// Its part is loaded, other devices still load theirs.
    Ready,
    Training,
    Evaluating,
}

/// The one decision. `heard`: whether there was a sign of life in time.
pub(crate) fn status(role: Role, phase: Option<Phase>, heard: bool) -> Status {
    match (role, phase) {
        (_, Some(Phase::Finished)) => Status::Finished,
        (_, Some(Phase::Stopped)) => Status::Stopped,
        _ if !heard => Status::Silent,
        // A device measures itself on joining, whatever the run does.
        (Role::Benchmarking, _) => Status::Benchmarking,
        (_, Some(Phase::Paused)) => Status::Paused,
        (_, Some(Phase::Waiting)) => Status::Waiting,
        (Role::Spare, _) => Status::Spare,
        (Role::Loading, _) => Status::Loading,
        (Role::Training, Some(Phase::Loading)) => Status::Ready,
        (Role::Training, _) => Status::Training,
        (Role::Evaluating, _) => Status::Evaluating,
    }
}

/// What a row of the table shows of a device.
pub(crate) fn of_worker(worker: &WorkerView, phase: Phase, link: Link) -> Status {
    let heard = link != Link::Silent && worker.silent_seconds <= DEVICE_SILENT_AFTER;
    status(worker.state.into(), Some(phase), heard)
}

/// What this tab's device is doing.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Activity {
    /// Nobody pressed the button yet.
    Idle,
    /// The page was reloaded; the device joins again by itself.
    Rejoining {
        in_seconds: f64,
    },
    /// Loading the training program.
    Starting {
        slow: bool,
    },
    Connecting {
        slow: bool,
    },
    InRun(Status),
    /// Without a connection of its own.
    Reconnecting {
        in_seconds: f64,
        reason: String,
        /// Whether the page hears nothing either, so that it is not this device alone.
        coordinator_silent: bool,
    },
    Stopping,
    Left,
    /// The run is over, and this device takes no part in it any more, or never did.
    Over {
        finished: bool,
        took_part: bool,
    },
    /// The coordinator's words.
    Refused(String),
    /// The training program's words.
    Failed(String),
    /// What the browser said.
    Crashed(String),
    Unloadable,
}

impl Activity {
    /// Name for style sheets and tests.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Activity::Idle => "idle",
            Activity::Rejoining { .. } => "rejoining",
            Activity::Starting { .. } => "starting",
            Activity::Connecting { .. } => "connecting",
            Activity::InRun(Status::Finished | Status::Stopped) | Activity::Over { .. } => "over",
            Activity::InRun(Status::Silent) => "silent",
            Activity::InRun(Status::Paused) => "paused",
            Activity::InRun(Status::Waiting) => "waiting",
            Activity::InRun(Status::Benchmarking) => "benchmarking",
            Activity::InRun(Status::Spare) => "spare",
            Activity::InRun(Status::Loading) => "loading",
            Activity::InRun(Status::Ready) => "ready",
            Activity::InRun(Status::Training) => "training",
            Activity::InRun(Status::Evaluating) => "evaluating",
            Activity::Reconnecting { .. } => "reconnecting",
            Activity::Stopping => "stopping",
            Activity::Left => "left",
            Activity::Refused(_) => "refused",
            Activity::Failed(_) => "failed",
            Activity::Crashed(_) => "crashed",
            Activity::Unloadable => "unloadable",
        }
    }
}

/// What this device is doing at `now`, in seconds of the page's clock.
pub(crate) fn of_session(session: &Session, phase: Option<Phase>, link: Link, now: f64) -> Activity {
    let slow = now - session.since > SLOW_AFTER;
    let role = match &session.stage {
        // A run that is over takes nobody, and no fault of this device matters to it any more.
        stage if !stage.is_active() && phase.is_some_and(is_over) => {
            return Activity::Over {
                finished: phase == Some(Phase::Finished),
                took_part: session.took_part(),
            };
        }
        Stage::Over(reason) => {
            let finished = *reason == protocol::message::DrainReason::Finished;
            return Activity::Over { finished, took_part: true };
        }
        Stage::Idle => return Activity::Idle,
        Stage::Rejoining { at } => return Activity::Rejoining { in_seconds: (at - now).max(0.0) },
        Stage::Starting => return Activity::Starting { slow },
        Stage::Connecting => return Activity::Connecting { slow },
        Stage::Reconnecting { at, reason } => {
            return Activity::Reconnecting {
                in_seconds: (at - now).max(0.0),
                reason: reason.clone(),
                coordinator_silent: link == Link::Silent,
            };
        }
        Stage::Stopping => return Activity::Stopping,
        Stage::Left => return Activity::Left,
        Stage::Refused(words) => return Activity::Refused(words.clone()),
        Stage::Failed(words) => return Activity::Failed(words.clone()),
        Stage::Crashed(words) => return Activity::Crashed(words.clone()),
        Stage::Unloadable => return Activity::Unloadable,
        Stage::Benchmarking => Role::Benchmarking,
        Stage::Measured | Stage::Spare => Role::Spare,
        Stage::Loading => Role::Loading,
        Stage::Training => Role::Training,
        Stage::Evaluating => Role::Evaluating,
    };
    let answered = session.answered.is_some_and(|at| now - at <= SILENT_AFTER);
    Activity::InRun(status(role, phase, answered || link != Link::Silent))
}

#[cfg(test)]
mod tests {
    use protocol::{message::DrainReason, tab::SessionEvent};

    use super::*;
    use crate::state::fixtures::at_block;

    const ROLES: [Role; 5] =
        [Role::Benchmarking, Role::Spare, Role::Loading, Role::Training, Role::Evaluating];

    fn shown(stage: Stage, phase: Phase, link: Link) -> Activity {
        of_session(&Session { stage, ..Session::default() }, Some(phase), link, 100.0)
    }

    #[test]
    fn nothing_trains_in_a_run_that_does_not() {
        for phase in [Phase::Waiting, Phase::Paused, Phase::Finished, Phase::Stopped] {
            for role in ROLES {
                let status = status(role, Some(phase), true);
                assert_ne!(status, Status::Training, "{role:?} while {phase:?}");
                assert_ne!(status, Status::Spare, "{role:?} while {phase:?}: all parts taken is no reason");
            }
        }
        assert_eq!(status(Role::Training, Some(Phase::Paused), true), Status::Paused);
        assert_eq!(status(Role::Training, Some(Phase::Loading), true), Status::Ready);
        assert_eq!(status(Role::Training, Some(Phase::Training), true), Status::Training);
        assert_eq!(status(Role::Benchmarking, Some(Phase::Paused), true), Status::Benchmarking);
    }

    #[test]
    fn silence_hides_what_nobody_knows() {
        for role in ROLES {
            assert_eq!(status(role, Some(Phase::Training), false), Status::Silent);
            assert_eq!(status(role, Some(Phase::Finished), false), Status::Finished);
        }
    }

    #[test]
    fn card_and_table_say_the_same() {
        let mut worker = at_block(1, "Ada", 0);
        for phase in [Phase::Waiting, Phase::Loading, Phase::Training, Phase::Paused, Phase::Stopped] {
            for link in [Link::Live, Link::Silent] {
                let card = shown(Stage::Training, phase, link);
                assert_eq!(card, Activity::InRun(of_worker(&worker, phase, link)), "{phase:?} {link:?}");
            }
        }
        worker.silent_seconds = 9.0;
        assert_eq!(of_worker(&worker, Phase::Training, Link::Live), Status::Silent);
    }

    #[test]
    fn an_answer_to_the_device_is_a_sign_of_life() {
        let mut session = Session::default().starting(0.0);
        session.apply(SessionEvent::Training { epoch: 1, hops: vec![] }, 1.0);
        session.apply(SessionEvent::DeltaOutcome { round: 1, refused: None }, 98.0);
        let at = |now| of_session(&session, Some(Phase::Training), Link::Silent, now);
        assert_eq!(at(100.0), Activity::InRun(Status::Training));
        assert_eq!(at(104.0), Activity::InRun(Status::Silent));
    }

    #[test]
    fn a_run_that_is_over_comes_before_what_this_device_met() {
        let ends = [Stage::Idle, Stage::Left, Stage::Refused("the run is over".into()), Stage::Unloadable];
        for stage in ends {
            let over = Activity::Over { finished: true, took_part: false };
            assert_eq!(shown(stage, Phase::Finished, Link::Live), over);
        }
        let own = shown(Stage::Over(DrainReason::Stopped), Phase::Training, Link::Live);
        assert_eq!(own, Activity::Over { finished: false, took_part: true });
        assert_eq!(shown(Stage::Refused("full".into()), Phase::Training, Link::Live).name(), "refused");
    }

    #[test]
    fn the_count_to_the_next_try_runs() {
        let stage = Stage::Reconnecting { at: 108.0, reason: "gone".into() };
        let session = Session { stage, ..Session::default() };
        let left = |now| match of_session(&session, None, Link::Live, now) {
            Activity::Reconnecting { in_seconds, .. } => in_seconds,
            other => panic!("{other:?}"),
        };
        assert_eq!((left(100.0), left(105.0), left(120.0)), (8.0, 3.0, 0.0));
    }

    #[test]
    fn waiting_for_long_is_told() {
        let session = Session::default().starting(0.0);
        let at = |now| of_session(&session, None, Link::Live, now);
        assert_eq!(at(5.0), Activity::Starting { slow: false });
        assert_eq!(at(30.0), Activity::Starting { slow: true });
    }
}
