//! The headers of frames: what workers and the coordinator say to each other.
//!
//! There is one enum for each way a message can go, and a message is added in one place, the file of its enum:
//!
//! * [`Up`] (`up.rs`): from a worker to the coordinator,
//! * [`Down`] (`down.rs`): from the coordinator to a worker,
//! * [`Relayed`] (`relayed.rs`): from a worker to another, through the coordinator, which forwards the bytes it got.
//!
//! What the coordinator reads is a [`FromWorker`], what a worker reads a [`ToWorker`]. A relayed message has the same
//! bytes in both.

mod decoding;
mod down;
mod measurements;
mod relayed;
mod up;

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    checked::{Checked, RuleResult},
    tensor::TensorMeta,
};

pub use decoding::*;
pub use down::*;
pub use measurements::*;
pub use relayed::*;
pub use up::*;

/// What follows the header of a frame.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Payload<'a> {
    /// Nothing.
    None,
    /// The numbers of a tensor.
    Tensor(&'a TensorMeta),
    /// So many bytes. Only their number matters.
    Padding(u32),
}

/// A message: anything with a name and rules that a header can hold.
pub trait Header: Checked + Serialize + DeserializeOwned {
    /// The message's name, for logs and refusals.
    fn name(&self) -> &'static str;
    /// What follows the header.
    fn payload(&self) -> Payload<'_>;
}

/// A whole header: [`FromWorker`] or [`ToWorker`].
///
/// [`Up`], [`Down`] and [`Relayed`] are parts of one, with other bytes, so that [`crate::frame`] does not take them.
pub trait FrameHeader: Header {}

/// The rule of a tensor's description. [`crate::frame`] holds it against the payload, which the header does not know.
fn described(_: &TensorMeta) -> RuleResult {
    Ok(())
}

/// Declares an enum of messages. Each variant is named like the struct it carries; `=> payload` gives what follows its
/// header.
macro_rules! messages {
    (
        $(#[$outer:meta])*
        pub enum $name:ident {
            $( $(#[$inner:meta])* $variant:ident $( => $payload:expr )? ),* $(,)?
        }
    ) => {
        $(#[$outer])*
        pub enum $name {
            $( $(#[$inner])* $variant($variant), )*
        }

        impl $crate::checked::Checked for $name {
            fn check(&self) -> $crate::checked::RuleResult {
                match self {
                    $( Self::$variant(message) => {
                        message.check().map_err(|error| error.within(stringify!($variant)))
                    } )*
                }
            }
        }

        impl $crate::message::Header for $name {
            fn name(&self) -> &'static str {
                match self { $( Self::$variant(_) => stringify!($variant), )* }
            }

            fn payload(&self) -> $crate::message::Payload<'_> {
                match self { $( Self::$variant(_message) => messages!(@payload _message $(, $payload)?), )* }
            }
        }

        $( impl From<$variant> for $name {
            fn from(message: $variant) -> Self { Self::$variant(message) }
        } )*
    };
    (@payload $message:ident) => { $crate::message::Payload::None };
    (@payload $message:ident, $payload:expr) => { ($payload)($message) };
}

use messages;

/// A frame as the coordinator reads it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum FromWorker {
    /// For another worker. First, so that its bytes are those of [`ToWorker::Relayed`].
    Relayed(Relayed),
    /// For the coordinator.
    Up(Up),
}

/// A frame as a worker reads it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum ToWorker {
    /// From another worker. First, so that its bytes are those of [`FromWorker::Relayed`].
    Relayed(Relayed),
    /// From the coordinator.
    Down(Down),
}

macro_rules! either {
    ($name:ident, $own:ident) => {
        impl Checked for $name {
            fn check(&self) -> RuleResult {
                match self {
                    Self::Relayed(message) => message.check(),
                    Self::$own(message) => message.check(),
                }
            }
        }

        impl Header for $name {
            fn name(&self) -> &'static str {
                match self {
                    Self::Relayed(message) => message.name(),
                    Self::$own(message) => message.name(),
                }
            }

            fn payload(&self) -> Payload<'_> {
                match self {
                    Self::Relayed(message) => message.payload(),
                    Self::$own(message) => message.payload(),
                }
            }
        }

        impl FrameHeader for $name {}

        impl From<$own> for $name {
            fn from(message: $own) -> Self {
                Self::$own(message)
            }
        }

        impl From<Relayed> for $name {
            fn from(message: Relayed) -> Self {
                Self::Relayed(message)
            }
        }
    };
}

either!(FromWorker, Up);
either!(ToWorker, Down);
