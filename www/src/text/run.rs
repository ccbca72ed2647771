//! The run in words: its phase, its numbers, and who takes part.

use protocol::view::{Phase, RunView};

use super::{
    Tone, bounded,
    numbers::{NONE, about, count, loss, plural, rate},
    sentence,
};
use crate::state::{
    facts::{busy_and_spare, is_over, is_running, seconds_left},
    link::Link,
    mode::Mode,
};

/// The phase in a word or two; while the coordinator is silent nobody knows it.
pub(crate) fn phase(phase: Option<Phase>, link: Link) -> (&'static str, Tone) {
    match (phase, link) {
        (Some(Phase::Finished), _) => ("Finished", Tone::Good),
        (Some(Phase::Stopped), _) => ("Stopped", Tone::Calm),
        (_, Link::Silent) => ("No answer", Tone::Warn),
        (None, _) => ("Asking the coordinator", Tone::Calm),
        (Some(Phase::Waiting), _) => ("Waiting to start", Tone::Calm),
        (Some(Phase::Loading), _) => ("Loading", Tone::Busy),
        (Some(Phase::Training), _) => ("Training", Tone::Good),
        (Some(Phase::Serving), _) => ("Serving", Tone::Good),
        (Some(Phase::Paused), _) => ("Paused", Tone::Warn),
    }
}

/// Why the run is in its phase, as the coordinator says it.
pub(crate) fn reason(run: &RunView) -> String {
    sentence(&run.reason)
}

/// The title of a tab that shows the run.
pub(crate) fn tab_title(run: Option<&RunView>, link: Link) -> String {
    match run {
        Some(run) => {
            let (state, _) = phase(Some(run.phase), link);
            format!("{state} · {} · Cohort", Mode::of(&run.run).text().progress(run))
        }
        None => "Cohort".to_owned(),
    }
}

/// What the run is.
pub(crate) fn about_run(run: &RunView) -> String {
    Mode::of(&run.run).text().about(run)
}

/// What its numbers mean.
pub(crate) fn task(run: &RunView) -> String {
    Mode::of(&run.run).text().task(run)
}

/// How a text is divided into tokens.
pub(crate) fn tokenizer(name: &str) -> String {
    match name {
        "bytes" => "one per byte".to_owned(),
        "characters" | "chars" => "one per character".to_owned(),
        other => format!("from the tokenizer {other}"),
    }
}

/// The run's name.
pub(crate) fn name(run: &RunView) -> String {
    bounded(&run.run.name)
}

/// "3 devices take part, 1 stands by."
pub(crate) fn crowd(run: &RunView) -> String {
    let (busy, spare) = busy_and_spare(run);
    match (busy, spare) {
        (0, 0) if is_over(run.phase) => "No device is connected any more.".to_owned(),
        (0, 0) => "No device is here yet.".to_owned(),
        (0, _) => format!("{} here.", plural(spare, "device is", "devices are")),
        (_, 0) => format!("{} part.", plural(busy, "device takes", "devices take")),
        _ => format!(
            "{} part, {} by.",
            plural(busy, "device takes", "devices take"),
            plural(spare, "stands", "stand")
        ),
    }
}

/// Who is here, where the run's own reason does not say so already.
pub(crate) fn crowd_at_work(run: &RunView) -> Option<String> {
    is_running(run.phase).then(|| crowd(run))
}

/// Devices that hold a part of the model.
pub(crate) fn devices(run: &RunView) -> String {
    count(busy_and_spare(run).0)
}

/// The others, and how many the run needs while it still does.
pub(crate) fn spares(run: &RunView) -> String {
    let spares = match busy_and_spare(run).1 {
        0 => "no spares".to_owned(),
        n => format!("and {}", plural(n, "spare", "spares")),
    };
    if is_over(run.phase) {
        spares
    } else {
        format!("{spares}; {} or more needed", count(run.workers_wanted.into()))
    }
}

/// Steps done.
pub(crate) fn step(run: &RunView) -> String {
    count(run.step)
}

/// Steps of the whole run, and the time that is left.
pub(crate) fn steps(run: &RunView) -> String {
    of_all(run, run.steps)
}

/// Rounds of the whole run, and the time that is left.
pub(crate) fn rounds(run: &RunView) -> String {
    of_all(run, run.rounds.as_ref().map_or(0, |rounds| rounds.rounds))
}

/// "of 400, about 3 min left".
fn of_all(run: &RunView, all: u64) -> String {
    let left = seconds_left(run).map(|seconds| format!(", about {} left", about(seconds)));
    format!("of {}{}", count(all), left.unwrap_or_default())
}

/// Loss of the newest step, in nats per token.
pub(crate) fn train_loss(run: &RunView) -> String {
    run.train_loss.map_or(NONE.to_owned(), loss)
}

/// Loss on held-out text, in nats per token.
pub(crate) fn validation_loss(run: &RunView) -> String {
    run.validation_loss.map_or(NONE.to_owned(), loss)
}

/// Tokens per second, while there is a present to speak of.
pub(crate) fn speed(run: &RunView) -> String {
    if is_running(run.phase) { rate(run.tokens_per_second) } else { NONE.to_owned() }
}

/// The newest snapshot.
pub(crate) fn snapshot(run: &RunView) -> String {
    run.snapshot_step.map_or("none yet".to_owned(), |step| format!("step {}", count(step)))
}

/// What the snapshot is good for.
pub(crate) fn snapshot_note(run: &RunView) -> String {
    match run.snapshot_step {
        Some(_) if is_over(run.phase) => "the state that is kept".to_owned(),
        Some(_) => "the run can resume from it".to_owned(),
        None => String::new(),
    }
}

/// The heading of a volunteer's page.
pub(crate) fn volunteer_heading(phase: Option<Phase>, mode: Option<Mode>) -> &'static str {
    if mode == Some(Mode::Serve) {
        "Help run a language model"
    } else if phase.is_some_and(is_over) {
        "A language model, trained together"
    } else {
        "Help train a language model"
    }
}

pub(crate) const ASKING: &str = "Asking the coordinator what is being trained …";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::fixtures::{at_block, blocks, pipeline, worker};

    #[test]
    fn a_run_that_is_over_does_not_speak_as_if_live() {
        let mut run = pipeline(Phase::Training);
        (run.snapshot_step, run.tokens_per_second) = (Some(80), 120.0);
        assert_eq!(spares(&run), "no spares; 2 or more needed");
        assert_eq!(
            (snapshot_note(&run).as_str(), speed(&run).as_str()),
            ("the run can resume from it", "120")
        );
        run.phase = Phase::Finished;
        assert_eq!(spares(&run), "no spares");
        assert_eq!((snapshot_note(&run).as_str(), speed(&run).as_str()), ("the state that is kept", "–"));
        assert_eq!(crowd(&run), "No device is connected any more.");
    }

    #[test]
    fn titles_follow_phase_and_link() {
        let title = |phase, link| tab_title(Some(&pipeline(phase)), link);
        assert_eq!(title(Phase::Training, Link::Live), "Training · step 0 · Cohort");
        assert_eq!(title(Phase::Paused, Link::Live), "Paused · step 0 · Cohort");
        assert_eq!(title(Phase::Training, Link::Silent), "No answer · step 0 · Cohort");
        assert_eq!(title(Phase::Finished, Link::Silent), "Finished · step 0 · Cohort");
        let rounds = blocks(Phase::Training);
        assert_eq!(tab_title(Some(&rounds), Link::Live), "Training · round 0 · Cohort");
        assert_eq!(tab_title(None, Link::Silent), "Cohort");
    }

    #[test]
    fn devices_are_counted_in_both_modes_alike() {
        let mut run = blocks(Phase::Training);
        assert_eq!(crowd(&run), "No device is here yet.");
        run.workers = vec![at_block(1, "Ada", 0), at_block(2, "Blaise", 1), worker(3, "Charles")];
        assert_eq!(crowd(&run), "2 devices take part, 1 stands by.");
        assert_eq!((devices(&run).as_str(), spares(&run).as_str()), ("2", "and 1 spare; 2 or more needed"));
    }
}
