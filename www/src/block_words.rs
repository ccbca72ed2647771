//! What the pages say in block mode. No browser in here.

use protocol::view::{BlockView, ReplicaView, RoundsView, RunView, WorkerView};

use crate::{
    format::{count, loss, noise, percent, plural, rough, seconds},
    session::{Progress, Round, Session, Stage},
    words::{self, Tone, Words, sentence},
};

/// Whether the run is in block mode.
pub fn is_block_mode(view: &RunView) -> bool {
    view.run.blocks.is_some()
}

/// What this device is doing, where block mode has other words for it than pipeline mode.
pub fn stage(stage: &Stage) -> Words {
    let say =
        |tone, title: &str, detail: &str| Words { tone, title: title.to_owned(), detail: detail.to_owned() };
    match stage {
        Stage::Benchmarking => say(
            Tone::Busy,
            "Measuring this device",
            "A few seconds of trial work show how long a round will take it.",
        ),
        Stage::Measured => say(
            Tone::Busy,
            "Measured",
            "The coordinator gives this device a block when the next round opens.",
        ),
        Stage::Spare => say(
            Tone::Calm,
            "Waiting for a round",
            "This device gets a block of the model when the next round opens. You can leave it waiting.",
        ),
        Stage::Loading => say(
            Tone::Busy,
            "Loading your block",
            "Fetching the block as it is now, with what all devices have learned so far.",
        ),
        Stage::Training => say(
            Tone::Good,
            "Training",
            "This device teaches one block of the model by itself, round after round, and sends back what the block \
             learned.",
        ),
        Stage::Measuring => say(
            Tone::Good,
            "Measuring the model",
            "This device tries the whole model on text that nobody trains on. A round of its own follows.",
        ),
        other => words::stage(other),
    }
}

/// What the run is, for someone who has never seen it.
pub fn run(view: &RunView) -> String {
    let blocks = view.run.blocks.map_or(1, |blocks| blocks.count);
    format!(
        "A language model of {} parameters is learning from {}. It is cut into {}, and every device teaches one of \
         them by itself. After each round the coordinator averages what the devices learned.",
        rough(view.parameters),
        view.corpus,
        plural(blocks.into(), "block", "blocks"),
    )
}

/// What the numbers of the curve mean, and how much text there is.
pub fn task(view: &RunView) -> String {
    format!(
        "The model guesses the next token of a text. Each block is shown the text so far and the answer hidden in \
         noise, and learns to see through the noise. To be measured, the blocks start from pure noise, without the \
         answer: the cross-entropy from noise says how much the right token then surprises them, so its line should \
         fall. There are {} tokens to learn from, {}.",
        rough(view.train_tokens),
        words::tokenizer(&view.tokenizer),
    )
}

/// "1.6 to 4.3": the noise a block works at.
pub fn range(block: &BlockView) -> String {
    format!("{} to {}", noise(block.sigma_min), noise(block.sigma_max))
}

/// "Block 2 of 3, which denoises at noise 1.6 to 4.3".
pub fn block(index: u32, rounds: Option<&RoundsView>) -> String {
    let Some(rounds) = rounds else { return format!("Block {}", index + 1) };
    let of = format!("Block {} of {}", index + 1, rounds.blocks.len());
    match rounds.blocks.get(index as usize) {
        Some(block) => format!("{of}: denoises at noise {}", range(block)),
        None => of,
    }
}

/// What noise of that strength means for the block, for a stranger.
pub fn task_of_block(index: u32, count: usize) -> String {
    let words = match (index as usize, count) {
        (_, 1) => "It is the only block and does the whole way from pure noise to a guess.",
        (0, _) => {
            "It has the strongest noise: hardly anything of the answer is left to see, so it must learn to guess \
             from the text before. It goes first when the model writes."
        }
        (index, count) if index + 1 == count => {
            "It has the weakest noise: it learns to turn a blurred guess into a clear one. It goes last when the \
             model writes, and its guess counts."
        }
        _ => {
            "It has noise in between: it learns to sharpen the guess of the blocks before it and hands it on to those \
             after it."
        }
    };
    format!("{words} At noise 0 the answer would be in plain sight; from about 10 on it is drowned.")
}

/// What the round on this device is at.
pub fn round(round: &Round, rounds: Option<u64>) -> String {
    let of = rounds.map_or(String::new(), |rounds| format!(" of {}", count(rounds)));
    let now = match round.progress {
        Progress::Fetching => "fetching the block".to_owned(),
        Progress::Learning { step, steps } => format!("local step {step} of {steps}"),
        Progress::Sent => "sent, waiting for the coordinator's check".to_owned(),
        Progress::Accepted => "accepted, waiting for the next round".to_owned(),
        Progress::Refused => "not taken, waiting for the next round".to_owned(),
    };
    format!("Round {}{of}: {now}", count(round.number + 1))
}

/// Share of the local steps of the round that are done.
pub fn share(round: &Round) -> f64 {
    match round.progress {
        Progress::Fetching => 0.0,
        Progress::Learning { step, steps } => f64::from(step) / f64::from(steps.max(1)),
        Progress::Sent | Progress::Accepted | Progress::Refused => 1.0,
    }
}

/// What the device does beside the state in large letters: its round, or a measurement.
pub fn now(session: &Session, view: Option<&RunView>) -> Option<String> {
    if let Some(after) = session.measuring {
        let rounds = plural(after, "round", "rounds");
        return Some(format!("Measuring the model after {rounds}, on text that nobody trains on."));
    }
    let rounds = view.and_then(|view| view.rounds.as_ref());
    session.round.as_ref().map(|now| {
        format!("{}. {}.", block(now.block, rounds), round(now, rounds.map(|rounds| rounds.rounds)))
    })
}

/// Why work was refused last.
pub fn refusal((number, words): &(u64, String)) -> String {
    format!(
        "Round {} was not taken: {} Nothing is broken; the next round starts from the newest block.",
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

/// "3 devices take part, 1 stands by."
pub fn crowd(view: &RunView) -> String {
    let busy = view.workers.iter().filter(|worker| holds(worker).is_some()).count() as u64;
    words::crowd_of(busy, view.workers.len() as u64 - busy)
}

/// The block a worker is at, from 0.
pub fn holds(worker: &WorkerView) -> Option<u32> {
    worker.replica.and_then(|replica| replica.block)
}

/// "Block 2".
pub fn held(worker: &WorkerView) -> String {
    holds(worker).map_or("None now".to_owned(), |block| format!("Block\u{a0}{}", block + 1))
}

/// "41", and "41, 2 refused, 1 missed" for a worker of whom not all was taken.
pub fn tally(replica: &ReplicaView) -> String {
    let mut words = count(replica.accepted);
    if replica.refused > 0 {
        words.push_str(&format!(", {} refused", count(replica.refused)));
    }
    if replica.missed > 0 {
        words.push_str(&format!(", {} missed", count(replica.missed)));
    }
    words
}

/// "2 of 3 in", "no device".
pub fn arrived(block: &BlockView) -> String {
    match block.replicas {
        0 => "no device this round".to_owned(),
        replicas => format!("{} of {replicas} in", block.arrived),
    }
}

/// "86 % of the devices asked, 91 % on average".
pub fn participation(rounds: &RoundsView) -> (String, String) {
    let last = rounds.participation.map_or("–".to_owned(), percent);
    let mean = rounds.mean_participation.map_or("no round is done yet".to_owned(), |mean| {
        format!("of the devices came in time; {} on average", percent(mean))
    });
    (last, mean)
}

/// How long a round takes and may take.
pub fn round_time(rounds: &RoundsView) -> (String, String) {
    let last = rounds.round_seconds.map_or("–".to_owned(), seconds);
    let limit = if rounds.deadline_seconds > 0.0 {
        format!("this round may take {}", seconds(rounds.deadline_seconds))
    } else {
        "no round is open".to_owned()
    };
    (last, limit)
}

/// Cross-entropy from noise in the newest evaluation, and when that was.
pub fn from_noise(rounds: &RoundsView) -> (String, String) {
    match &rounds.evaluation {
        Some((after, scores)) => {
            (loss(scores.one_draw), format!("after {}", plural(*after, "round", "rounds")))
        }
        None => ("–".to_owned(), "not measured yet".to_owned()),
    }
}

/// Seconds until the last round at the pace of the last one.
pub fn seconds_left(view: &RunView) -> Option<f64> {
    let rounds = view.rounds.as_ref()?;
    let left = rounds.rounds.saturating_sub(rounds.round) as f64 * rounds.round_seconds?;
    (view.phase == protocol::view::Phase::Training && left > 0.0).then_some(left)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounds() -> RoundsView {
        let block = |sigma_min, sigma_max| BlockView { sigma_min, sigma_max, ..BlockView::default() };
        RoundsView {
            round: 0,
            rounds: 400,
            local_steps: 10,
            blocks: vec![block(4.29, 10.0), block(1.62, 4.29), block(1.0, 1.62)],
            deadline_seconds: 0.0,
            participation: None,
            mean_participation: None,
            round_seconds: None,
            accepted: 0,
            refused: 0,
            bytes_down: 0,
            bytes_up: 0,
            aggregator: "mean".into(),
            evaluation: None,
        }
    }

    fn at(progress: Progress) -> Round {
        Round { number: 11, block: 1, progress, cross_entropy: None }
    }

    #[test]
    fn a_block_is_named_with_its_noise() {
        assert_eq!(block(1, Some(&rounds())), "Block 2 of 3: denoises at noise 1.6 to 4.3");
        assert_eq!(block(2, Some(&rounds())), "Block 3 of 3: denoises at noise 1.0 to 1.6");
        assert_eq!(block(1, None), "Block 2");
        assert_eq!(block(7, Some(&rounds())), "Block 8 of 3");
        assert!(task_of_block(0, 3).contains("strongest"));
        assert!(task_of_block(1, 3).contains("in between"));
        assert!(task_of_block(2, 3).contains("weakest"));
        assert!(task_of_block(0, 1).contains("only block"));
    }

    #[test]
    fn a_round_is_told_step_by_step() {
        assert_eq!(
            round(&at(Progress::Learning { step: 4, steps: 10 }), Some(400)),
            "Round 12 of 400: local step 4 of 10"
        );
        assert_eq!(round(&at(Progress::Fetching), None), "Round 12: fetching the block");
        let shares: Vec<f64> = [
            Progress::Fetching,
            Progress::Learning { step: 4, steps: 10 },
            Progress::Learning { step: 0, steps: 0 },
            Progress::Sent,
        ]
        .into_iter()
        .map(|progress| share(&at(progress)))
        .collect();
        assert_eq!(shares, [0.0, 0.4, 0.0, 1.0]);
    }

    #[test]
    fn measuring_comes_before_the_round() {
        let mut session = Session { round: Some(at(Progress::Accepted)), ..Session::default() };
        assert_eq!(now(&session, None).unwrap(), "Block 2. Round 12: accepted, waiting for the next round.");
        session.measuring = Some(12);
        assert!(now(&session, None).unwrap().starts_with("Measuring the model after 12 rounds"));
        assert_eq!(now(&Session::default(), None), None);
    }

    #[test]
    fn a_refusal_is_a_sentence() {
        assert_eq!(
            refusal(&(4, "it is all zeros: nothing was learned".into())),
            "Round 5 was not taken: it is all zeros: nothing was learned. Nothing is broken; the next round starts \
             from the newest block."
        );
    }

    #[test]
    fn work_is_tallied() {
        let replica = ReplicaView { accepted: 1234, ..ReplicaView::default() };
        assert_eq!(tally(&replica), "1,234");
        assert_eq!(tally(&ReplicaView { refused: 2, missed: 1, ..replica }), "1,234, 2 refused, 1 missed");
        assert_eq!(arrived(&BlockView { replicas: 3, arrived: 2, ..BlockView::default() }), "2 of 3 in");
        assert_eq!(arrived(&BlockView::default()), "no device this round");
    }

    #[test]
    fn numbers_of_a_run_without_rounds_are_dashes() {
        assert_eq!(participation(&rounds()), ("–".into(), "no round is done yet".into()));
        assert_eq!(round_time(&rounds()), ("–".into(), "no round is open".into()));
        assert_eq!(from_noise(&rounds()), ("–".into(), "not measured yet".into()));
        let busy = RoundsView {
            participation: Some(0.5),
            mean_participation: Some(0.861),
            round_seconds: Some(1.5),
            deadline_seconds: 4.0,
            ..rounds()
        };
        assert_eq!(
            participation(&busy),
            ("50 %".into(), "of the devices came in time; 86 % on average".into())
        );
        assert_eq!(round_time(&busy), ("1.50 s".into(), "this round may take 4.00 s".into()));
    }

    #[test]
    fn words_of_pipeline_mode_do_not_leak_in() {
        for stage_now in [Stage::Spare, Stage::Loading, Stage::Training, Stage::Measured, Stage::Benchmarking]
        {
            let said = stage(&stage_now);
            assert!(!said.detail.contains("layer") && !said.detail.contains("parts"), "{}", said.detail);
        }
        assert_eq!(stage(&Stage::Idle), words::stage(&Stage::Idle));
    }
}
