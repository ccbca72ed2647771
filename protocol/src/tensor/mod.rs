//! Tensors on the wire: what the header says of the payload, and how values become bytes.
//!
//! [`encode_floats`] and [`encode_tokens`] give a payload with its [`TensorMeta`]; [`decode_floats`] and
//! [`decode_tokens`] take it back and trust nothing. [`mod@f16`], [`mod@int8`] and [`mod@top_k`] hold the arithmetic.

mod codec;
pub mod f16;
pub mod int8;
mod meta;
pub mod top_k;

pub(crate) use codec::check_finite;
pub use codec::{CodecError, decode_floats, decode_tokens, encode_floats, encode_tokens, verify};
pub use meta::{Encoding, MAX_ELEMENTS, MAX_RANK, MetaError, TensorMeta};
