//! The session of a device, from the button to the end.

use protocol::{
    message::{DrainReason, Timings},
    spec::Part,
};

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
    let mut session = Session::default().starting(0.0);
    session.apply(SessionEvent::Connecting, 0.0);
    session.apply(SessionEvent::Training { epoch: 1, hops: hops() }, 0.0);
    session.apply(step(1), 0.0);
    session.apply(SessionEvent::Reconnecting { in_seconds: 1.0, reason: "gone".into() }, 0.0);
    assert!(session.hops.is_empty());
    session.apply(SessionEvent::Training { epoch: 2, hops: hops() }, 0.0);
    session.apply(step(2), 0.0);
    let work = session.work.as_ref().unwrap();
    assert_eq!((work.step, work.steps, work.micro_batches, work.bytes_sent), (2, 2, 8, 20));
    assert!(session.stage.is_active());
}

#[test]
fn stopping_stays_until_the_worker_has_left() {
    let mut session = Session { stage: Stage::Stopping, ..Session::default() };
    session.apply(SessionEvent::Training { epoch: 1, hops: hops() }, 0.0);
    assert_eq!(session.stage, Stage::Stopping);
    session.apply(SessionEvent::Left, 0.0);
    assert_eq!(session.stage, Stage::Left);
    assert!(!session.stage.is_active());
}

#[test]
fn a_dead_worker_means_what_the_moment_says() {
    let ends = |stage| {
        let mut session = Session { stage, ..Session::default() };
        session.lost_worker("unreachable".into(), 0.0);
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
    let mut session = Session::default().starting(0.0);
    session.apply(SessionEvent::Spare, 0.0);
    session.apply(SessionEvent::BlockLoading { round: 0, block: 1 }, 0.0);
    assert_eq!((name(&session.stage), progress(&session)), ("loading", Progress::Fetching));
    session.apply(local_step(0, 1), 0.0);
    assert_eq!(name(&session.stage), "training");
    assert_eq!(progress(&session), Progress::Training { step: 1, steps: 10 });
    session.apply(sent(0), 0.0);
    assert_eq!((name(&session.stage), progress(&session)), ("training", Progress::Sent));
    assert_eq!(session.round.as_ref().unwrap().cross_entropy, Some(3.5));
    session.apply(SessionEvent::DeltaOutcome { round: 0, refused: None }, 0.0);
    assert_eq!((name(&session.stage), progress(&session)), ("training", Progress::Accepted));
    session.apply(SessionEvent::Evaluating { round: 1 }, 0.0);
    assert_eq!((name(&session.stage), session.evaluating), ("training", Some(1)));
    session.apply(SessionEvent::BlockLoading { round: 1, block: 1 }, 0.0);
    assert_eq!((name(&session.stage), session.evaluating), ("training", None));
    session.apply(local_step(1, 1), 0.0);
    session.apply(sent(1), 0.0);
    session.apply(SessionEvent::DeltaOutcome { round: 1, refused: None }, 0.0);
    let rounds = &session.rounds;
    assert_eq!((rounds.sent, rounds.accepted, rounds.refused), (2, 2, 0));
    assert_eq!((rounds.bytes_sent, rounds.bytes_received), (200, 600));
    assert_eq!(rounds.timings.unwrap().busy(), 3.0);
}

#[test]
fn a_refused_delta_tells_why_and_keeps_telling() {
    let mut session = Session::default().starting(0.0);
    session.apply(local_step(4, 10), 0.0);
    session.apply(sent(4), 0.0);
    session.apply(SessionEvent::DeltaOutcome { round: 4, refused: Some("it is all zeros".into()) }, 0.0);
    assert_eq!(progress(&session), Progress::Refused);
    session.apply(local_step(5, 10), 0.0);
    session.apply(sent(5), 0.0);
    session.apply(SessionEvent::DeltaOutcome { round: 5, refused: None }, 0.0);
    assert_eq!((session.rounds.accepted, session.rounds.refused), (1, 1));
    assert_eq!(session.rounds.refusal, Some((4, "it is all zeros".into())));
    // Late words about an old round change nothing of the one under way.
    session.apply(local_step(6, 2), 0.0);
    session.apply(SessionEvent::DeltaOutcome { round: 5, refused: Some("too long".into()) }, 0.0);
    assert_eq!(progress(&session), Progress::Training { step: 2, steps: 10 });
}

#[test]
fn an_accepted_delta_that_is_dropped_after_all_is_not_counted_twice() {
    let mut session = Session::default().starting(0.0);
    session.apply(sent(0), 0.0);
    session.apply(SessionEvent::DeltaOutcome { round: 0, refused: None }, 0.0);
    session.apply(
        SessionEvent::DeltaOutcome { round: 0, refused: Some("its length is 9 times the others'".into()) },
        0.0,
    );
    assert_eq!((session.rounds.accepted, session.rounds.refused), (0, 1));
}

#[test]
fn a_lost_connection_drops_the_round_and_keeps_what_was_done() {
    let mut session = Session::default().starting(0.0);
    session.apply(local_step(0, 10), 0.0);
    session.apply(sent(0), 0.0);
    session.apply(SessionEvent::DeltaOutcome { round: 0, refused: None }, 0.0);
    session.apply(local_step(1, 3), 0.0);
    session.apply(SessionEvent::Reconnecting { in_seconds: 1.0, reason: "gone".into() }, 0.0);
    assert_eq!((name(&session.stage), session.round.is_none()), ("reconnecting", true));
    session.apply(SessionEvent::Connecting, 0.0);
    session.apply(SessionEvent::BlockLoading { round: 3, block: 0 }, 0.0);
    assert_eq!((name(&session.stage), session.rounds.accepted), ("loading", 1));
    session
        .apply(SessionEvent::LocalStep { round: 3, block: 0, step: 1, steps: 10, cross_entropy: 3.0 }, 0.0);
    assert_eq!(name(&session.stage), "training");
}

fn name(stage: &Stage) -> &'static str {
    match stage {
        Stage::Loading => "loading",
        Stage::Training => "training",
        Stage::Reconnecting { .. } => "reconnecting",
        _ => "other",
    }
}

#[test]
fn times_are_kept_for_those_who_wait() {
    let mut session = Session::default().starting(10.0);
    assert_eq!((session.since, session.answered), (10.0, None));
    session.apply(SessionEvent::Connecting, 12.0);
    session.apply(SessionEvent::Connecting, 13.0);
    assert_eq!((session.since, session.answered), (12.0, None));
    session.apply(SessionEvent::Spare, 14.0);
    assert_eq!((session.since, session.answered), (14.0, Some(14.0)));
    session.apply(SessionEvent::Reconnecting { in_seconds: 8.0, reason: "gone".into() }, 20.0);
    assert_eq!(session.stage, Stage::Reconnecting { at: 28.0, reason: "gone".into() });
    assert!(!session.took_part());
    session.apply(SessionEvent::Over { reason: DrainReason::Finished }, 30.0);
    assert!(session.took_part());
}

#[test]
fn a_reload_does_not_end_participation() {
    let mut session = Session::default();
    assert_eq!(session.takes_part(), None);
    session.rejoin(10.0);
    assert_eq!((session.stage.clone(), session.takes_part()), (Stage::Rejoining { at: 16.0 }, None));
    assert!(!session.stage.is_active());
    session.cancel();
    assert_eq!(session.stage, Stage::Idle);
    let mut session = session.starting(16.0);
    assert_eq!(session.takes_part(), Some(true));
    session.stop(20.0);
    assert_eq!(session.takes_part(), Some(false));
    session.apply(SessionEvent::Left, 21.0);
    assert_eq!(session.takes_part(), Some(false));
}
