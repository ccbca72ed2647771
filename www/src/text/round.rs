//! A round of block mode on this device, and the rounds of the run, in words.

use protocol::view::{ReplicaView, RoundsView, RunView};

use super::{
    block,
    numbers::{NONE, bytes, count, loss, percent, plural, seconds},
    sentence,
};
use crate::state::session::{Progress, Round, Session};

/// How far the round on this device is.
pub(crate) fn round(round: &Round, rounds: Option<u64>) -> String {
    let of = rounds.map_or(String::new(), |rounds| format!(" of {}", count(rounds)));
    let now = match round.progress {
        Progress::Fetching => "fetching the block".to_owned(),
        Progress::Training { step, steps } => format!("local step {step} of {steps}"),
        Progress::Sent => "delta sent, waiting for the coordinator's check".to_owned(),
        Progress::Accepted => "accepted, waiting for the next round".to_owned(),
        Progress::Refused => "refused, waiting for the next round".to_owned(),
    };
    format!("Round {}{of}: {now}", count(round.number + 1))
}

/// Share of the local steps of the round that are done, 0 to 1.
pub(crate) fn share(round: &Round) -> f64 {
    match round.progress {
        Progress::Fetching => 0.0,
        Progress::Training { step, steps } => f64::from(step) / f64::from(steps.max(1)),
        Progress::Sent | Progress::Accepted | Progress::Refused => 1.0,
    }
}

/// What the device does beside its status: its round, or an evaluation.
pub(crate) fn now(session: &Session, view: Option<&RunView>) -> Option<String> {
    if let Some(after) = session.evaluating {
        let rounds = plural(after, "round", "rounds");
        return Some(format!("Evaluating the model after {rounds}, on held-out text."));
    }
    let rounds = view.and_then(|view| view.rounds.as_ref());
    session.round.as_ref().map(|now| {
        format!("{}. {}.", block::name(now.block, rounds), round(now, rounds.map(|rounds| rounds.rounds)))
    })
}

/// The last refusal, while it is news: until a round after it was checked.
pub(crate) fn news(session: &Session) -> Option<String> {
    let last = session.rounds.refusal.as_ref()?;
    let is_news = session.round.as_ref().is_none_or(|round| round.number <= last.0 + 1);
    is_news.then(|| refusal(last))
}

/// Why a delta was refused.
pub(crate) fn refusal((number, words): &(u64, String)) -> String {
    format!(
        "The delta of round {} was refused: {} Nothing is broken; the next round starts from the block's newest weights.",
        count(number + 1),
        small_sentence(words)
    )
}

/// A sentence that goes on after a colon.
fn small_sentence(words: &str) -> String {
    let sentence = sentence(words);
    let mut letters = sentence.chars();
    letters.next().map_or(String::new(), |first| format!("{}{}", first.to_lowercase(), letters.as_str()))
}

/// Participation in the last round, and on average.
pub(crate) fn participation(rounds: &RoundsView) -> (String, String) {
    let last = rounds.participation.map_or(NONE.to_owned(), percent);
    let mean = rounds.mean_participation.map_or("no round is done yet".to_owned(), |mean| {
        format!("of the deltas came in time; {} on average", percent(mean))
    });
    (last, mean)
}

/// How long the last round took, and how long the one in progress may take.
pub(crate) fn round_time(rounds: &RoundsView) -> (String, String) {
    let last = rounds.round_seconds.map_or(NONE.to_owned(), seconds);
    let limit = if rounds.deadline_seconds > 0.0 {
        format!("this round may take {}", seconds(rounds.deadline_seconds))
    } else {
        "no round is in progress".to_owned()
    };
    (last, limit)
}

/// Cross-entropy from noise in the newest evaluation, and when that was.
pub(crate) fn from_noise(rounds: &RoundsView) -> (String, String) {
    match &rounds.evaluation {
        Some((after, scores)) => {
            (loss(scores.one_draw), format!("after {}", plural(*after, "round", "rounds")))
        }
        None => (NONE.to_owned(), "not evaluated yet".to_owned()),
    }
}

/// "none refused", "12 refused".
pub(crate) fn refused(rounds: &RoundsView) -> String {
    format!("{} refused", if rounds.refused == 0 { "none".to_owned() } else { count(rounds.refused) })
}

/// Bytes to the devices for accepted deltas.
pub(crate) fn bytes_down(rounds: &RoundsView) -> String {
    bytes(rounds.bytes_down)
}

/// Bytes from the devices for accepted deltas.
pub(crate) fn bytes_up(rounds: &RoundsView) -> String {
    bytes(rounds.bytes_up)
}

/// "41", and "41, 2 refused, 1 missed" for a worker of whom not everything was accepted.
pub(crate) fn tally(replica: &ReplicaView) -> String {
    let mut words = count(replica.accepted);
    if replica.refused > 0 {
        words.push_str(&format!(", {} refused", count(replica.refused)));
    }
    if replica.missed > 0 {
        words.push_str(&format!(", {} missed", count(replica.missed)));
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::fixtures::rounds;

    fn at(progress: Progress) -> Round {
        Round { number: 11, block: 1, progress, cross_entropy: None }
    }

    #[test]
    fn a_round_is_told_step_by_step() {
        assert_eq!(
            round(&at(Progress::Training { step: 4, steps: 10 }), Some(400)),
            "Round 12 of 400: local step 4 of 10"
        );
        assert_eq!(round(&at(Progress::Fetching), None), "Round 12: fetching the block");
        let shares: Vec<f64> = [
            Progress::Fetching,
            Progress::Training { step: 4, steps: 10 },
            Progress::Training { step: 0, steps: 0 },
            Progress::Sent,
        ]
        .into_iter()
        .map(|progress| share(&at(progress)))
        .collect();
        assert_eq!(shares, [0.0, 0.4, 0.0, 1.0]);
    }

    #[test]
    fn an_evaluation_comes_before_the_round() {
        let mut session = Session { round: Some(at(Progress::Accepted)), ..Session::default() };
        assert_eq!(now(&session, None).unwrap(), "Block 2. Round 12: accepted, waiting for the next round.");
        session.evaluating = Some(12);
        assert!(now(&session, None).unwrap().starts_with("Evaluating the model after 12 rounds"));
        assert_eq!(now(&Session::default(), None), None);
    }

    #[test]
    fn a_refusal_is_a_sentence_and_grows_old() {
        assert_eq!(
            refusal(&(4, "it is all zeros: nothing was learned".into())),
            "The delta of round 5 was refused: it is all zeros: nothing was learned. Nothing is broken; the next round \
             starts from the block's newest weights."
        );
        let mut session = Session { round: Some(at(Progress::Accepted)), ..Session::default() };
        session.rounds.refusal = Some((10, "late".into()));
        assert!(news(&session).is_some());
        session.rounds.refusal = Some((9, "late".into()));
        assert_eq!(news(&session), None);
    }

    #[test]
    fn numbers_of_a_run_without_rounds_are_dashes() {
        assert_eq!(participation(&rounds()), ("–".into(), "no round is done yet".into()));
        assert_eq!(round_time(&rounds()), ("–".into(), "no round is in progress".into()));
        assert_eq!(from_noise(&rounds()), ("–".into(), "not evaluated yet".into()));
        let busy = RoundsView {
            participation: Some(0.5),
            mean_participation: Some(0.861),
            round_seconds: Some(1.5),
            deadline_seconds: 4.0,
            ..rounds()
        };
        assert_eq!(
            participation(&busy),
            ("50 %".into(), "of the deltas came in time; 86 % on average".into())
        );
        assert_eq!(round_time(&busy), ("1.50 s".into(), "this round may take 4.00 s".into()));
    }

    #[test]
    fn work_is_counted() {
        let replica = ReplicaView { accepted: 1234, ..ReplicaView::default() };
        assert_eq!(tally(&replica), "1,234");
        assert_eq!(tally(&ReplicaView { refused: 2, missed: 1, ..replica }), "1,234, 2 refused, 1 missed");
    }
}
