//! What Cohort says on the wire: frames, messages, tensor encodings, blobs, and the JSON of the pages.
//!
//! No IO and no tensor library; builds natively and for wasm32.

pub mod blob;
pub mod checked;
pub mod delta;
pub mod evaluation;
pub mod frame;
pub mod limits;
pub mod message;
pub mod published;
pub mod refusal;
pub mod spec;
pub mod tab;
pub mod tensor;
pub mod view;
pub mod worker_id;

/// Version of the frame format and of everything inside.
pub const VERSION: u8 = 2;

/// WebSocket subprotocol of `/v1/session`.
pub const SUBPROTOCOL: &str = "cohort.v1";
