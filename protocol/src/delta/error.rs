//! Why a delta's file cannot be written, or is not what was asked for.

use super::{DeltaEncoding, MAGIC};
use crate::{blob::BlobHash, limits::HEADER_BYTES, tensor::CodecError};

/// Why a delta cannot be written or is not accepted.
///
/// Tensors, and the numbers in one, count from 0.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum DeltaError {
    /// Not a delta, or one of another version.
    #[error(
        "the file begins with {found:02x?}, a delta with {MAGIC:02x?}: send a delta of this program's version"
    )]
    Magic {
        /// The first bytes.
        found: [u8; 4],
    },
    /// The file ends too early.
    #[error("the {part} has {actual} bytes where {needed} are needed: send the delta whole")]
    Truncated {
        /// The part that is cut.
        part: &'static str,
        /// Bytes that it should have.
        needed: u64,
        /// Bytes that it has.
        actual: u64,
    },
    /// Something follows the payload.
    #[error("{bytes} bytes follow the last tensor: send nothing after it")]
    Trailing {
        /// How much.
        bytes: u64,
    },
    /// The header is too long.
    #[error("the header takes {bytes} bytes, at most {HEADER_BYTES} are allowed: name fewer delta.lengths")]
    HeaderOversized {
        /// Length of the header.
        bytes: usize,
    },
    /// The header is no [`DeltaHeader`](super::DeltaHeader).
    #[error("the header is not that of a delta ({0}): bring both sides to one build")]
    Header(postcard::Error),
    /// The header's length says more than the header takes.
    #[error("the header length covers {bytes} bytes after the header: count the header only")]
    TrailingHeader {
        /// How much more.
        bytes: usize,
    },
    /// Of another round.
    #[error("delta.round is {found}, round {expected} is open: train from the weights of this round")]
    Round {
        /// Of the delta.
        found: u64,
        /// The open one.
        expected: u64,
    },
    /// Of another block.
    #[error("delta.block is {found}, this worker has block {expected}: send the block it was assigned")]
    Block {
        /// Of the delta.
        found: u32,
        /// The worker's.
        expected: u32,
    },
    /// Measured against other weights of the block.
    #[error("delta.base is {found}, the round started from {expected}: fetch that version of the block")]
    Base {
        /// Of the delta.
        found: BlobHash,
        /// Of the round.
        expected: BlobHash,
    },
    /// Measured against another table.
    #[error("delta.table is {found}, the round started from {expected}: fetch that version of the table")]
    Table {
        /// Of the delta.
        found: BlobHash,
        /// Of the round.
        expected: BlobHash,
    },
    /// Encoded otherwise than the run is.
    #[error("delta.encoding is {found}, the run uses {expected}: encode as the run says")]
    Encoding {
        /// Of the delta.
        found: DeltaEncoding,
        /// Of the run.
        expected: DeltaEncoding,
    },
    /// More or fewer tensors than the block has.
    #[error("delta.lengths has {found} tensors, the block {expected}: send every tensor, and nothing else")]
    Tensors {
        /// Of the delta.
        found: usize,
        /// Of the block.
        expected: usize,
    },
    /// A tensor of another length.
    #[error("delta.lengths[{tensor}] is {found}, the tensor has {expected} numbers: send it whole")]
    Length {
        /// Which.
        tensor: usize,
        /// Numbers in the delta.
        found: usize,
        /// Numbers in the block.
        expected: usize,
    },
    /// Numbers that are not finite, or become so, or that no encoder makes.
    #[error("tensor {tensor} cannot be used: {source}")]
    Tensor {
        /// Which.
        tensor: usize,
        /// What is wrong with it.
        source: CodecError,
    },
    /// Top-k names a place outside the tensor.
    #[error("tensor {tensor}: index {index} lies outside its {length} numbers: count from 0")]
    Index {
        /// Which.
        tensor: usize,
        /// The place.
        index: u32,
        /// Numbers in the tensor.
        length: u32,
    },
    /// Top-k names a place twice, or not in order.
    #[error("tensor {tensor}: index {index} comes after {before}: send each once, in ascending order")]
    Order {
        /// Which.
        tensor: usize,
        /// The place before.
        before: u32,
        /// The place.
        index: u32,
    },
    /// A number larger than [`largest`](super::DeltaExpectation::largest).
    #[error(
        "tensor {tensor}, number {index}: {value} is absurd, at most {largest} is allowed: lower the rate"
    )]
    Absurd {
        /// Which.
        tensor: usize,
        /// The first such number.
        index: usize,
        /// What it is.
        value: f32,
        /// The largest allowed.
        largest: f32,
    },
    /// The sender has nowhere to keep what top-k leaves out.
    #[error("top-k needs residuals to keep what it does not send: hand in an empty list in the first round")]
    NoResiduals,
}
