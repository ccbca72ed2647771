//! What a worker learned in a round: a file, sent as a blob over HTTP.
//!
//! ```text
//! "CDL1" | u32le header length (<= 64 KiB) | postcard header | payload of each tensor, in order
//! ```
//!
//! All numbers little-endian. Payload of a tensor of n numbers, by [`DeltaEncoding`]:
//!
//! * f32: 4n bytes; f16: 2n.
//! * int8: a scale (f32) for every 64 numbers, the last of which may be fewer, then n signed bytes
//!   ([`crate::tensor::int8`]).
//! * top-k: k = [`top_k::count`] indices (u32), ascending, then k values (f32); the rest is 0.
//!
//! A delta is measured against a base, so the header names it: whoever adds the delta must hold that very
//! base. [`decode`] trusts nothing and gives finite numbers of the expected lengths, or an error in words.

mod error;
mod refusal;

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{
    blob::BlobHash,
    limits::HEADER_BYTES,
    tensor::{
        CodecError, check_finite, f16,
        int8::{self, Blocks, WIRE_BLOCK},
        top_k::{self, Selection},
    },
};

pub use error::DeltaError;
pub use refusal::DeltaRefusal;

/// First bytes of every delta: the format and its version.
pub const MAGIC: [u8; 4] = *b"CDL1";

/// Magic and header length.
const PREFIX: usize = 4 + 4;

/// How the numbers of a delta are laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeltaEncoding {
    /// IEEE binary32: exact.
    F32,
    /// IEEE binary16, rounded to nearest even.
    F16,
    /// Blocks of 64 numbers with one scale, off by up to half of it.
    Int8,
    /// The largest numbers of each tensor; what is not sent is kept for the next round.
    TopK {
        /// Share of the numbers sent, in thousandths.
        per_mille: u32,
    },
}

impl fmt::Display for DeltaEncoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeltaEncoding::F32 => f.write_str("f32"),
            DeltaEncoding::F16 => f.write_str("f16"),
            DeltaEncoding::Int8 => f.write_str("int8"),
            DeltaEncoding::TopK { per_mille } => write!(f, "top-k {per_mille}‰"),
        }
    }
}

/// What a delta is a delta of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeltaHeader {
    /// The round.
    pub round: u64,
    /// The block, from 0.
    pub block: u32,
    /// The block's weights that the worker started from.
    pub base: BlobHash,
    /// The shared table that the worker started from.
    pub table: BlobHash,
    /// How the numbers are laid out.
    pub encoding: DeltaEncoding,
    /// Numbers per tensor, in the order both sides know.
    pub lengths: Vec<u32>,
}

/// What the receiver asked for, and what it allows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DeltaExpectation<'a> {
    /// The open round.
    pub round: u64,
    /// The block that this worker was given.
    pub block: u32,
    /// The block's weights that the round started from.
    pub base: BlobHash,
    /// The shared table that the round started from.
    pub table: BlobHash,
    /// The run's encoding.
    pub encoding: DeltaEncoding,
    /// Numbers per tensor.
    pub lengths: &'a [u32],
    /// Largest size of a number that training can have moved a weight by.
    pub largest: f32,
}

/// A delta, decoded.
#[derive(Debug, Clone, PartialEq)]
pub struct Delta {
    /// Every number of every tensor, those not sent as 0.
    pub tensors: Vec<Vec<f32>>,
    /// Hash of the payload alone, without the header: two deltas of one body are copies, whoever sent them
    /// and for whichever round.
    pub body: BlobHash,
}

/// Length in bytes of the payload of tensors of these `lengths`.
///
/// Per tensor of n numbers: f32 4n, f16 2n, int8 n + 4 ceil(n / 64), top-k 8k.
pub fn encoded_bytes(encoding: DeltaEncoding, lengths: &[u32]) -> u64 {
    lengths.iter().map(|&length| tensor_bytes(encoding, length)).sum()
}

fn tensor_bytes(encoding: DeltaEncoding, length: u32) -> u64 {
    let n = u64::from(length);
    match encoding {
        DeltaEncoding::F32 => 4 * n,
        DeltaEncoding::F16 => 2 * n,
        DeltaEncoding::Int8 => n + 4 * n.div_ceil(WIRE_BLOCK.get() as u64),
        DeltaEncoding::TopK { per_mille } => 8 * top_k::count(length as usize, per_mille) as u64,
    }
}

/// Writes `tensors`, whose lengths must be those of the header.
///
/// `residuals`, needed for top-k alone, are what earlier rounds did not send, one list per tensor; an empty
/// list starts from zeros. They are added to what is sent, and afterwards hold what was not. Whoever finds
/// the delta refused must go back to the residuals of before, or what was in it is lost.
///
/// # Errors
/// Tensors or residuals of other lengths than the header's, top-k without residuals, a header too long, or a
/// number that is not finite or becomes so in f16 or int8. The residuals are then as before.
pub fn encode(
    header: &DeltaHeader,
    tensors: &[Vec<f32>],
    residuals: Option<&mut Vec<Vec<f32>>>,
) -> Result<Vec<u8>, DeltaError> {
    check_lengths(tensors.iter().map(Vec::len), &header.lengths)?;
    let head = postcard::to_stdvec(header).map_err(DeltaError::Header)?;
    if head.len() > HEADER_BYTES {
        return Err(DeltaError::HeaderOversized { bytes: head.len() });
    }
    let payload = encoded_bytes(header.encoding, &header.lengths);
    let mut bytes = Vec::with_capacity(PREFIX + head.len() + payload as usize);
    bytes.extend(MAGIC);
    bytes.extend((head.len() as u32).to_le_bytes());
    bytes.extend(head);

    if let DeltaEncoding::TopK { per_mille } = header.encoding {
        let residuals = residuals.ok_or(DeltaError::NoResiduals)?;
        let mut kept = if residuals.is_empty() {
            tensors.iter().map(|tensor| vec![0.0; tensor.len()]).collect()
        } else {
            check_lengths(residuals.iter().map(Vec::len), &header.lengths)?;
            residuals.clone()
        };
        for (number, (tensor, kept)) in tensors.iter().zip(&mut kept).enumerate() {
            let Selection { indices, values } =
                top_k::select(tensor, kept, per_mille).map_err(in_tensor(number))?;
            bytes.extend(indices.iter().flat_map(|index| index.to_le_bytes()));
            bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
        }
        *residuals = kept;
    } else {
        for (number, tensor) in tensors.iter().enumerate() {
            write_dense(tensor, header.encoding, &mut bytes).map_err(in_tensor(number))?;
        }
    }
    Ok(bytes)
}

/// Reads a delta and holds it against what was expected.
///
/// Takes no more memory than the bytes and the expected lengths account for, and the 1 MiB that a header of
/// hostile lengths may claim.
///
/// # Errors
/// Whatever differs from the expectation, or would not come from [`encode`]: see [`DeltaError`].
pub fn decode(bytes: &[u8], expected: &DeltaExpectation<'_>) -> Result<Delta, DeltaError> {
    let (header, payload) = split(bytes)?;
    check_header(&header, expected)?;
    let (needed, actual) = (encoded_bytes(expected.encoding, expected.lengths), payload.len() as u64);
    if actual < needed {
        return Err(DeltaError::Truncated { part: "payload", needed, actual });
    }
    if actual > needed {
        return Err(DeltaError::Trailing { bytes: actual - needed });
    }

    let mut rest = payload;
    let mut tensors = Vec::with_capacity(expected.lengths.len());
    for (number, &length) in expected.lengths.iter().enumerate() {
        // Cannot exceed what is left: all of them together are as long as the payload.
        let (own, after) = rest.split_at(tensor_bytes(expected.encoding, length) as usize);
        rest = after;
        let values = if let DeltaEncoding::TopK { .. } = expected.encoding {
            read_sparse(own, number, length)?
        } else {
            read_dense(own, length as usize, expected.encoding).map_err(in_tensor(number))?
        };
        check_size(&values, number, expected.largest)?;
        tensors.push(values);
    }
    Ok(Delta { tensors, body: BlobHash::of(payload) })
}

/// Header and payload.
fn split(bytes: &[u8]) -> Result<(DeltaHeader, &[u8]), DeltaError> {
    let truncated =
        |part, needed, rest: &[u8]| DeltaError::Truncated { part, needed, actual: rest.len() as u64 };
    let (found, rest) =
        bytes.split_first_chunk::<4>().ok_or_else(|| truncated("magic", MAGIC.len() as u64, bytes))?;
    if *found != MAGIC {
        return Err(DeltaError::Magic { found: *found });
    }
    let (length, rest) = rest.split_first_chunk::<4>().ok_or_else(|| truncated("header length", 4, rest))?;
    let length = u32::from_le_bytes(*length) as usize;
    if length > HEADER_BYTES {
        return Err(DeltaError::HeaderOversized { bytes: length });
    }
    let (head, payload) =
        rest.split_at_checked(length).ok_or_else(|| truncated("header", length as u64, rest))?;
    match postcard::take_from_bytes(head).map_err(DeltaError::Header)? {
        (header, []) => Ok((header, payload)),
        (_, rest) => Err(DeltaError::TrailingHeader { bytes: rest.len() }),
    }
}

fn check_header(header: &DeltaHeader, expected: &DeltaExpectation<'_>) -> Result<(), DeltaError> {
    // All fields named, so that what is added must be checked here.
    let DeltaHeader { round, block, base, table, encoding, lengths } = header;
    if *round != expected.round {
        return Err(DeltaError::Round { found: *round, expected: expected.round });
    }
    if *block != expected.block {
        return Err(DeltaError::Block { found: *block, expected: expected.block });
    }
    if *base != expected.base {
        return Err(DeltaError::Base { found: *base, expected: expected.base });
    }
    if *table != expected.table {
        return Err(DeltaError::Table { found: *table, expected: expected.table });
    }
    if *encoding != expected.encoding {
        return Err(DeltaError::Encoding { found: *encoding, expected: expected.encoding });
    }
    check_lengths(lengths.iter().map(|&length| length as usize), expected.lengths)
}

fn check_lengths(found: impl ExactSizeIterator<Item = usize>, expected: &[u32]) -> Result<(), DeltaError> {
    if found.len() != expected.len() {
        return Err(DeltaError::Tensors { found: found.len(), expected: expected.len() });
    }
    match found
        .zip(expected)
        .enumerate()
        .find(|(_, (found, expected))| *found as u64 != u64::from(**expected))
    {
        Some((tensor, (found, &expected))) => {
            Err(DeltaError::Length { tensor, found, expected: expected as usize })
        }
        None => Ok(()),
    }
}

/// Appends a tensor in any encoding but top-k.
fn write_dense(values: &[f32], encoding: DeltaEncoding, bytes: &mut Vec<u8>) -> Result<(), CodecError> {
    match encoding {
        DeltaEncoding::F16 => bytes.extend(f16::encode(values)?.into_iter().flat_map(u16::to_le_bytes)),
        DeltaEncoding::Int8 => {
            let Blocks { scales, quanta } = int8::quantize(values, WIRE_BLOCK)?;
            bytes.extend(scales.into_iter().flat_map(f32::to_le_bytes));
            bytes.extend(quanta.into_iter().map(|quantum| quantum as u8));
        }
        DeltaEncoding::F32 | DeltaEncoding::TopK { .. } => {
            check_finite(values)?;
            bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
        }
    }
    Ok(())
}

/// Reads a tensor of `length` numbers in any encoding but top-k; `bytes` are exactly its payload.
fn read_dense(bytes: &[u8], length: usize, encoding: DeltaEncoding) -> Result<Vec<f32>, CodecError> {
    match encoding {
        DeltaEncoding::F16 => {
            let (codes, _) = bytes.as_chunks::<2>();
            f16::decode(&codes.iter().map(|&code| u16::from_le_bytes(code)).collect::<Vec<_>>())
        }
        DeltaEncoding::Int8 => {
            let (scales, quanta) = bytes.split_at(bytes.len() - length);
            let quanta = quanta.iter().map(|&byte| byte as i8).collect();
            int8::dequantize(&Blocks { scales: floats(scales), quanta }, WIRE_BLOCK)
        }
        DeltaEncoding::F32 | DeltaEncoding::TopK { .. } => {
            let values = floats(bytes);
            check_finite(&values)?;
            Ok(values)
        }
    }
}

/// Reads a tensor of `length` numbers sent by top-k; `bytes` are its indices, then as many values.
fn read_sparse(bytes: &[u8], tensor: usize, length: u32) -> Result<Vec<f32>, DeltaError> {
    let (indices, values) = bytes.split_at(bytes.len() / 2);
    let values = floats(values);
    let mut dense = vec![0.0; length as usize];
    let mut before = None;
    for (&index, value) in indices.as_chunks::<4>().0.iter().zip(values) {
        let index = u32::from_le_bytes(index);
        if let Some(before) = before.filter(|&before| before >= index) {
            return Err(DeltaError::Order { tensor, before, index });
        }
        before = Some(index);
        *dense.get_mut(index as usize).ok_or(DeltaError::Index { tensor, index, length })? = value;
    }
    check_finite(&dense).map_err(in_tensor(tensor))?;
    Ok(dense)
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks::<4>().0.iter().map(|&word| f32::from_le_bytes(word)).collect()
}

fn check_size(values: &[f32], tensor: usize, largest: f32) -> Result<(), DeltaError> {
    match values.iter().position(|value| value.abs() > largest) {
        Some(index) => Err(DeltaError::Absurd { tensor, index, value: values[index], largest }),
        None => Ok(()),
    }
}

fn in_tensor(tensor: usize) -> impl Fn(CodecError) -> DeltaError {
    move |source| DeltaError::Tensor { tensor, source }
}
