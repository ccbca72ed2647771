//! The words of each mode.

use super::{block_mode::BlockText, mode::ModeText, pipeline::PipelineText, serve_mode::ServeText};
use crate::state::mode::Mode;

impl Mode {
    /// The words of this mode.
    pub(crate) fn text(self) -> &'static dyn ModeText {
        match self {
            Mode::Pipeline => &PipelineText,
            Mode::Block => &BlockText,
            Mode::Serve => &ServeText,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::activity::Status;

    const STATUSES: [Status; 11] = [
        Status::Finished,
        Status::Stopped,
        Status::Silent,
        Status::Paused,
        Status::Waiting,
        Status::Benchmarking,
        Status::Spare,
        Status::Loading,
        Status::Ready,
        Status::Training,
        Status::Evaluating,
    ];

    #[test]
    fn words_of_one_mode_do_not_appear_in_the_other() {
        for status in STATUSES {
            let pipeline = Mode::Pipeline.text().status(status);
            let all = format!("{} {}", pipeline.title, pipeline.detail).to_lowercase();
            assert!(!all.contains("block") && !all.contains("round"), "{all}");
            let block = Mode::Block.text().status(status);
            let all = format!("{} {}", block.title, block.detail).to_lowercase();
            assert!(
                !all.contains("layer") && !all.contains("parts") && !all.contains("standing by"),
                "{all}"
            );
        }
    }

    #[test]
    fn titles_tell_statuses_apart() {
        for mode in [Mode::Pipeline, Mode::Block, Mode::Serve] {
            let mut titles: Vec<String> = STATUSES.map(|status| mode.text().status(status).title).to_vec();
            titles.sort();
            titles.dedup();
            assert_eq!(titles.len(), STATUSES.len(), "{titles:?}");
        }
    }
}
