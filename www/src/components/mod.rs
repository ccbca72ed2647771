//! Parts that several pages share.

pub mod blocks;
pub mod chip;
pub mod confirm;
pub mod evaluation;
pub mod header;
pub mod invite;
pub mod link_lost;
pub mod model_strip;
pub mod pipeline;
pub mod progress;
pub mod stat;
pub mod time_bar;
pub mod workers;
