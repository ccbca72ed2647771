//! Parts that several pages share.

pub(crate) mod announce;
pub(crate) mod blocks;
pub(crate) mod by_mode;
pub(crate) mod chip;
pub(crate) mod confirm;
pub(crate) mod evaluation;
pub(crate) mod fact;
pub(crate) mod header;
pub(crate) mod invite;
pub(crate) mod main_area;
pub(crate) mod model_strip;
pub(crate) mod phase;
pub(crate) mod pipeline;
pub(crate) mod progress;
pub(crate) mod run_numbers;
pub(crate) mod stat;
pub(crate) mod time_bar;
pub(crate) mod workers;
