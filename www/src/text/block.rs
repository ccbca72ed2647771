//! Block mode in words: the run, its blocks, and a device that trains one.

use protocol::view::{BlockView, ReplicaView, RoundsView, RunView, WorkerView};

use super::{
    Tone, Words,
    mode::{Column, ModeText},
    numbers::{NONE, bytes, count, loss, noise, plural, rough, seconds},
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
}

fn of_replica(worker: &WorkerView, read: fn(&ReplicaView) -> String) -> String {
    worker.replica.as_ref().map_or(NONE.to_owned(), read)
}

/// "1.6 to 4.3": the standard deviations of the noise that a block removes.
pub(crate) fn range(block: &BlockView) -> String {
    format!("{} to {}", noise(block.sigma_min), noise(block.sigma_max))
}

/// "Block 2 of 3: noise 1.6 to 4.3".
pub(crate) fn name(index: u32, rounds: Option<&RoundsView>) -> String {
    let Some(rounds) = rounds else { return format!("Block {}", index + 1) };
    let of = format!("Block {} of {}", index + 1, rounds.blocks.len());
    match rounds.blocks.get(index as usize) {
        Some(block) => format!("{of}: noise {}", range(block)),
        None => of,
    }
}

/// What noise of that strength means for a block, for someone who has never seen it.
pub(crate) fn task_of(index: u32, count: usize) -> String {
    let words = match (index as usize, count) {
        (_, 1) => "It is the only block and does the whole way from pure noise to a prediction.",
        (0, _) => {
            "It has the strongest noise: hardly anything of the answer is visible, so it must learn to predict from the \
             text before. It goes first when the model writes."
        }
        (index, count) if index + 1 == count => {
            "It has the weakest noise: it learns to make an almost clear prediction clear. It goes last when the model \
             writes, and its output is the prediction."
        }
        _ => {
            "It has noise of medium strength: it improves the prediction of the blocks before it and hands it on to \
             those after it."
        }
    };
    format!("{words} At noise 0 the answer is plainly visible; from about 10 on nothing of it is.")
}

/// "2 of 3 received".
pub(crate) fn arrived(block: &BlockView) -> String {
    match block.replicas {
        0 => "no device this round".to_owned(),
        replicas => format!("{} of {replicas} received", block.arrived),
    }
}

/// Whether all, some or none of a block's devices have answered.
pub(crate) fn arrived_tone(block: &BlockView) -> Tone {
    match block.replicas {
        0 => Tone::Calm,
        replicas if replicas == block.arrived => Tone::Good,
        _ => Tone::Busy,
    }
}

/// Mean local cross-entropy of a block's last deltas.
pub(crate) fn local_cross_entropy(block: &BlockView) -> String {
    block.local_cross_entropy.map_or(NONE.to_owned(), loss)
}

/// "5 times": how often a block has been changed.
pub(crate) fn updates(block: &BlockView) -> String {
    plural(block.updates, "time", "times")
}

/// Reads the row of blocks out.
pub(crate) fn strip_label(count: usize, mine: &str) -> String {
    format!("The model: {count} blocks in the order in which they take turns. {mine}")
}

/// "Block 2".
pub(crate) fn heading(index: usize) -> String {
    format!("Block {}", index + 1)
}

/// Names the bar of a block.
pub(crate) fn bar_label(index: usize) -> String {
    format!("Deltas of block {} received in this round", index + 1)
}

/// "1 layer".
pub(crate) fn layers(each: u64) -> String {
    plural(each, "layer", "layers")
}

pub(crate) const TITLE: &str = "The blocks";
pub(crate) const EXPLANATION: &str = "Every block is trained by itself, on several devices at once, with noise of its \
    own strength. When the model writes, the blocks take turns in this order, from pure noise to a prediction. The \
    deltas from the devices of a block are combined into one change of the block, by this rule: ";
pub(crate) const NO_DEVICE: &str = "No device trains it now.";
pub(crate) const NOISE: &str = "Noise";
pub(crate) const PREDICTION: &str = "Prediction";
pub(crate) const SIZE: &str = "Size";
pub(crate) const CHANGED: &str = "Changed";
pub(crate) const LOCAL: &str = "Local cross-entropy, leaky";
pub(crate) const DEVICES: &str = "Devices";
pub(crate) const NONE_MINE: &str = "This device has no block now.";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::fixtures::rounds;

    #[test]
    fn a_block_is_named_with_its_noise() {
        assert_eq!(name(1, Some(&rounds())), "Block 2 of 3: noise 1.6 to 4.3");
        assert_eq!(name(2, Some(&rounds())), "Block 3 of 3: noise 1.0 to 1.6");
        assert_eq!(name(1, None), "Block 2");
        assert_eq!(name(7, Some(&rounds())), "Block 8 of 3");
        assert!(task_of(0, 3).contains("strongest"));
        assert!(task_of(1, 3).contains("medium"));
        assert!(task_of(2, 3).contains("weakest"));
        assert!(task_of(0, 1).contains("only block"));
    }

    #[test]
    fn received_deltas_are_counted() {
        let two_of_three = BlockView { replicas: 3, arrived: 2, ..BlockView::default() };
        assert_eq!(arrived(&two_of_three), "2 of 3 received");
        assert_eq!(arrived(&BlockView::default()), "no device this round");
    }
}
