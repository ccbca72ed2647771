//! Frames: one binary WebSocket message each.
//!
//! ```text
//! u8 version | u32le header length (<= 64 KiB) | postcard header | payload
//! ```
//!
//! The header is a [`FromWorker`](crate::message::FromWorker) on the way to the coordinator and a
//! [`ToWorker`](crate::message::ToWorker) on the way to a worker, at most [`HEADER_BYTES`] long. The payload belongs to
//! its tensor and is empty for most messages.
//!
//! [`decode`] looks at the header alone and borrows the payload, so that a relay can check a frame against the plan and
//! forward the bytes in which it came. The receiver verifies the payload when it decodes it with
//! [`crate::tensor::decode_floats`] or [`crate::tensor::decode_tokens`].

use crate::{
    VERSION,
    checked::FieldError,
    limits::{HEADER_BYTES, SENTENCE, shorten},
    message::{FrameHeader, Payload},
    refusal::Refusal,
    tensor::{MAX_ELEMENTS, MetaError},
};

/// Largest payload, in bytes: [`MAX_ELEMENTS`] f32. An activation of GPT-2 medium (N 8, T 1024, d 1024)
/// takes half of it.
pub const MAX_PAYLOAD: usize = 64 << 20;

/// Largest frame, in bytes: the limit to set on WebSocket messages.
pub const MAX_FRAME: usize = PREFIX + HEADER_BYTES + MAX_PAYLOAD;

/// Most memory [`decode`] holds at any time, in bytes, whatever the frame claims.
///
/// A claimed length is believed only as far as input is left for it (postcard), and up to 1 MiB of elements
/// (serde); the rest are strings that lie in the header.
pub const MAX_DECODE_MEMORY: usize = 2 << 20;

/// Version and header length.
const PREFIX: usize = 1 + 4;

const _: () = assert!(MAX_PAYLOAD as u64 == MAX_ELEMENTS * 4);

/// A decoded frame.
#[derive(Debug, Clone, PartialEq)]
pub struct Frame<'a, M> {
    /// The header, with every field within its rule.
    pub message: M,
    /// What follows it, as long as the header says: still encoded, and part of the bytes that were decoded.
    pub payload: &'a [u8],
}

/// Why a frame cannot be written or read.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum FrameError {
    /// Of another protocol version. Nothing after the first byte was looked at.
    #[error(
        "the frame is of protocol version {theirs}, this program speaks {VERSION}: bring both to one build"
    )]
    Version {
        /// The sender's.
        theirs: u8,
    },
    /// The frame ends too early.
    #[error("the frame ends after {bytes} bytes, in the middle of its {part}: send it whole")]
    Truncated {
        /// The part that is cut: version, header length or header.
        part: &'static str,
        /// Length of the frame.
        bytes: usize,
    },
    /// Longer than [`MAX_FRAME`].
    #[error("the frame is {bytes} bytes long: at most {MAX_FRAME} are allowed")]
    Oversized {
        /// Length of the frame.
        bytes: usize,
    },
    /// A header longer than [`HEADER_BYTES`].
    #[error("the header is {bytes} bytes long: at most {HEADER_BYTES} are allowed")]
    HeaderOversized {
        /// Length of the header.
        bytes: usize,
    },
    /// A header that is no message for the side that reads it.
    #[error("the header is not a message of protocol version {VERSION}: {0}")]
    Header(postcard::Error),
    /// The header's length says more than the message takes.
    #[error("the header length covers {bytes} bytes after the end of {message}: count the message only")]
    TrailingHeader {
        /// The message's name.
        message: &'static str,
        /// How much more.
        bytes: usize,
    },
    /// A payload behind a message that has none.
    #[error("{message} carries no tensor, yet {bytes} bytes follow its header: send it without a payload")]
    UnexpectedPayload {
        /// The message's name.
        message: &'static str,
        /// Length of the payload.
        bytes: usize,
    },
    /// A payload of another length than the header says.
    #[error("the payload of {message} is {actual} bytes long, its header says {declared}: make them equal")]
    PayloadLength {
        /// The message's name.
        message: &'static str,
        /// Length in the header, in bytes.
        declared: u64,
        /// Length of the payload, in bytes.
        actual: usize,
    },
    /// A tensor whose description contradicts itself or the limits.
    #[error("{message} is malformed: {source}")]
    Tensor {
        /// The message's name.
        message: &'static str,
        /// What is wrong with it.
        source: MetaError,
    },
    /// A field that breaks its rule.
    #[error(transparent)]
    Field(#[from] FieldError),
}

impl From<FrameError> for Refusal {
    fn from(error: FrameError) -> Self {
        match error {
            FrameError::Version { theirs } => Refusal::Version { theirs, ours: VERSION },
            FrameError::Oversized { bytes } => {
                Refusal::Oversized { bytes: bytes as u64, limit: MAX_FRAME as u64 }
            }
            other => Refusal::Malformed { detail: shorten(&other.to_string(), SENTENCE) },
        }
    }
}

/// Writes a frame. `payload` is empty unless the message carries a tensor or padding.
///
/// # Errors
/// Whatever [`decode`] would refuse in the frame.
pub fn encode(message: &impl FrameHeader, payload: &[u8]) -> Result<Vec<u8>, FrameError> {
    check(message, payload)?;
    let mut frame = Vec::with_capacity(PREFIX + 128 + payload.len());
    frame.extend([VERSION, 0, 0, 0, 0]);
    let mut frame = postcard::to_extend(message, frame).map_err(FrameError::Header)?;
    let header = frame.len() - PREFIX;
    if header > HEADER_BYTES {
        return Err(FrameError::HeaderOversized { bytes: header });
    }
    frame[1..PREFIX].copy_from_slice(&(header as u32).to_le_bytes());
    frame.extend_from_slice(payload);
    Ok(frame)
}

/// Reads a frame. The payload is borrowed and not looked at: its checksum is for the tensor's receiver.
///
/// Holds at most [`MAX_DECODE_MEMORY`], and never panics.
///
/// # Errors
/// Another version, a frame or header that is too long or too short, a header that is not exactly one message `M`, a
/// field that breaks its rule (see [`crate::checked`]), a payload without a tensor, or a tensor whose shape, encoding,
/// declared and real length disagree or exceed the limits.
pub fn decode<M: FrameHeader>(bytes: &[u8]) -> Result<Frame<'_, M>, FrameError> {
    let truncated = |part| FrameError::Truncated { part, bytes: bytes.len() };
    // The version comes first: other versions may count differently.
    let (&version, rest) = bytes.split_first().ok_or(truncated("version"))?;
    if version != VERSION {
        return Err(FrameError::Version { theirs: version });
    }
    if bytes.len() > MAX_FRAME {
        return Err(FrameError::Oversized { bytes: bytes.len() });
    }
    let (length, rest) = rest.split_first_chunk::<4>().ok_or(truncated("header length"))?;
    let length = u32::from_le_bytes(*length) as usize;
    if length > HEADER_BYTES {
        return Err(FrameError::HeaderOversized { bytes: length });
    }
    let (header, payload) = rest.split_at_checked(length).ok_or(truncated("header"))?;
    let (message, trailing): (M, _) = postcard::take_from_bytes(header).map_err(FrameError::Header)?;
    if !trailing.is_empty() {
        return Err(FrameError::TrailingHeader { message: message.name(), bytes: trailing.len() });
    }
    check(&message, payload)?;
    Ok(Frame { message, payload })
}

/// What must hold on both sides of the wire.
fn check(message: &impl FrameHeader, payload: &[u8]) -> Result<(), FrameError> {
    message.check()?;
    let name = message.name();
    let declared = match message.payload() {
        Payload::None if payload.is_empty() => return Ok(()),
        Payload::None => return Err(FrameError::UnexpectedPayload { message: name, bytes: payload.len() }),
        Payload::Padding(bytes) => u64::from(bytes),
        Payload::Tensor(tensor) => {
            tensor.check().map_err(|source| FrameError::Tensor { message: name, source })?;
            tensor.bytes
        }
    };
    if declared != payload.len() as u64 {
        return Err(FrameError::PayloadLength { message: name, declared, actual: payload.len() });
    }
    Ok(())
}
