//! Block mode in words: the run, and a device that trains a block.

use protocol::{
    spec::Hop,
    view::{ReplicaView, RunView, WorkerView},
};

use super::{
    Tone, Words,
    mode::{Column, ModeText},
    numbers::{NONE, bytes, count, plural, rough, seconds},
    round,
    run::tokenizer,
    say, worker,
};
use crate::state::{
    activity::Status,
    facts::{block_of, is_over},
    session::Session,
};

/// The words of block mode.
pub(crate) struct BlockText;

impl ModeText for BlockText {
    fn about(&self, run: &RunView) -> String {
        let blocks = run.run.blocks.map_or(1, |blocks| blocks.count);
        let (learns, trains, averages) = if is_over(run.phase) {
            ("has learned", "each device trained one of them by itself", "averaged")
        } else {
            ("is learning", "each device trains one of them by itself", "averages")
        };
        format!(
            "A language model of {} parameters {learns} from {}. It is divided into {}, and {trains}. After each round \
             the coordinator {averages} the changes from the devices.",
            rough(run.parameters),
            run.corpus,
            plural(blocks.into(), "block", "blocks"),
        )
    }

    fn task(&self, run: &RunView) -> String {
        format!(
            "The model predicts the next token of a text. Each block is trained to denoise: it gets the text so far and \
             the next token with noise added, and learns to remove the noise. For evaluation the blocks start from pure \
             noise, without the answer: the cross-entropy from noise, in nats per token, measures these predictions, and \
             lower is better. There are {} tokens to learn from, {}.",
            rough(run.train_tokens),
            tokenizer(&run.tokenizer),
        )
    }

    fn status(&self, status: Status) -> Words {
        match status {
            Status::Finished => {
                say(Tone::Good, "Run finished", "The last round is done. Thank you for taking part.")
            }
            Status::Stopped => say(Tone::Calm, "Run stopped", "The organizer ended the run."),
            Status::Silent => say(
                Tone::Warn,
                "No answer",
                "Nothing has come from the coordinator for some seconds. This device goes on as soon as it answers.",
            ),
            Status::Paused => say(
                Tone::Warn,
                "Paused",
                "The organizer has paused the run. This device gets a block again when the run is resumed.",
            ),
            Status::Waiting => say(
                Tone::Calm,
                "Waiting for the run",
                "This device is ready. Rounds begin when enough devices are here and the organizer starts the run.",
            ),
            Status::Benchmarking => say(
                Tone::Busy,
                "Measuring this device",
                "A few seconds of trial work show how long a round takes on it.",
            ),
            Status::Spare => say(
                Tone::Calm,
                "Waiting for a round",
                "This device gets a block of the model when the next round opens. You can leave it waiting.",
            ),
            Status::Loading => say(
                Tone::Busy,
                "Loading a block",
                "Fetching the block's current weights, with the changes from all devices so far.",
            ),
            Status::Ready => {
                say(Tone::Busy, "Ready", "The block is loaded, and the round is about to begin.")
            }
            Status::Training => say(
                Tone::Good,
                "Training",
                "This device trains one block of the model by itself, round after round, and sends back how the block's \
                 weights have changed.",
            ),
            Status::Evaluating => say(
                Tone::Good,
                "Evaluating",
                "This device evaluates the whole model on held-out text. It gets a block in a later round.",
            ),
        }
    }

    fn now(&self, session: &Session, run: Option<&RunView>) -> Option<String> {
        round::now(session, run)
    }

    fn own_progress(&self, session: &Session) -> Option<String> {
        session.round.as_ref().map(|round| format!("round {}", count(round.number + 1)))
    }

    fn progress(&self, run: &RunView) -> String {
        format!("round {}", count(run.rounds.as_ref().map_or(0, |rounds| rounds.round)))
    }

    fn part(&self) -> &'static str {
        "Block"
    }

    fn held(&self, worker: &WorkerView, _run: &RunView) -> String {
        block_of(worker).map_or("None now".to_owned(), |block| format!("Block\u{a0}{}", block + 1))
    }

    fn columns(&self) -> [Column; 4] {
        [
            Column {
                name: "Last round",
                read: |worker| {
                    of_replica(worker, |replica| replica.round_seconds.map_or(NONE.to_owned(), seconds))
                },
            },
            Column {
                name: "Received, sent",
                read: |worker| {
                    of_replica(worker, |replica| {
                        format!("{}, {}", bytes(replica.bytes_down), bytes(replica.bytes_up))
                    })
                },
            },
            Column { name: "Memory", read: worker::memory },
            Column { name: "Accepted", read: |worker| of_replica(worker, round::tally) },
        ]
    }

    fn removal(&self) -> &'static str {
        "Its work of this round is lost and counts as missed. The round goes on with the other devices."
    }

    fn absence(&self) -> &'static str {
        "The run survives that: the round goes on with the other devices, and this one joins again when you come back."
    }

    fn numbers_sent(&self) -> &'static str {
        "Deltas: after each round, how much every weight of its block has changed, to the coordinator. When it evaluates \
         the model: the scores."
    }

    fn text_received(&self) -> &'static str {
        "The text that the model learns from comes from the coordinator, a few windows of it for each round. None of it \
         is sent back, and nothing on your device becomes part of it."
    }

    // No device holds layers for others here.
    fn sends(&self, _hops: &[Hop]) -> &'static str {
        ""
    }

    fn order(&self) -> &'static str {
        ""
    }
}

fn of_replica(worker: &WorkerView, read: fn(&ReplicaView) -> String) -> String {
    worker.replica.as_ref().map_or(NONE.to_owned(), read)
}
