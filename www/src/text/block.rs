//! Blocks in words.

use protocol::view::{BlockView, RoundsView};

use super::{
    Tone,
    numbers::{NONE, loss, noise, plural},
};

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
