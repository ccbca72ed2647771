//! What Cohort says on the wire: frames, messages, tensor encodings, blobs, and the JSON of the pages.
//!
//! No IO and no tensor library; builds natively and for wasm32.
//!
//! # Layout
//!
//! Each module uses only those above it.
//!
//! | module | holds |
//! |---|---|
//! | [`limits`] | how long texts and lists may be, and how large numbers |
//! | [`blob`] | hashes and lengths of what travels over HTTP |
//! | [`worker_id`] | the number of a worker |
//! | [`checked`] | rules for fields, and structs that name one beside each field |
//! | [`tensor`] | tensors as bytes: f32, f16, int8, token ids, and top-k |
//! | [`delta`] | the file of what a worker learned in a round, and why one is refused |
//! | [`spec`], `sizes` | what is trained, and who holds which part; how many parameters that has |
//! | [`evaluation`], [`published`] | scores and weights of block mode |
//! | [`refusal`] | why a frame or a worker is turned away |
//! | [`message`] | what workers and the coordinator say: one enum up, one down, one relayed |
//! | [`frame`] | a message and its payload as one binary WebSocket message |
//! | [`view`], [`serving`], [`tab`] | JSON: from the coordinator to the pages, and between a page and its Web Worker |
//!
//! A message is added in the file of its enum, [`message::Up`], [`message::Down`] or [`message::Relayed`]; a field with
//! its rule beside it. Both sides then refuse what breaks the rule, by the name of the field ([`checked::FieldError`]).

#![deny(missing_docs, unreachable_pub)]

pub mod blob;
pub mod checked;
pub mod delta;
pub mod evaluation;
pub mod frame;
pub mod limits;
pub mod message;
pub mod published;
pub mod refusal;
pub mod serving;
mod sizes;
pub mod spec;

pub mod tab;
pub mod tensor;
pub mod view;
pub mod worker_id;

/// Version of the frame format and of everything inside. The first byte of every frame.
pub const VERSION: u8 = 3;

/// WebSocket subprotocol of `/v1/session`.
pub const SUBPROTOCOL: &str = "cohort.v1";
