//! Messages from one worker to another, relayed by the coordinator.

use serde::{Deserialize, Serialize};

use super::{Payload, described, messages};
use crate::{
    checked::{Checked, RuleResult, at_most, checked_struct, counter, nested},
    limits,
    tensor::TensorMeta,
};

messages! {
    /// From one worker to another. The coordinator checks the header and forwards the bytes it got.
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub enum Relayed {
        /// Hidden states [N, T, d], to the next hop.
        Activation => Activation::payload,
        /// Their gradient, to the hop before.
        Gradient => Gradient::payload,
    }
}

impl Relayed {
    /// The tensor and its address.
    pub fn frame(&self) -> &TensorFrame {
        match self {
            Relayed::Activation(Activation(frame)) | Relayed::Gradient(Gradient(frame)) => frame,
        }
    }
}

/// Declares a message that is a tensor with an address.
macro_rules! tensor_message {
    ($(#[$outer:meta])* $name:ident) => {
        $(#[$outer])*
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        pub struct $name(pub TensorFrame);

        impl Checked for $name {
            fn check(&self) -> RuleResult {
                self.0.check()
            }
        }

        impl $name {
            fn payload(&self) -> Payload<'_> {
                Payload::Tensor(&self.0.tensor)
            }
        }
    };
}

pub(super) use tensor_message;

tensor_message! {
    /// Hidden states [N, T, d] on their way forward.
    Activation
}

tensor_message! {
    /// Gradients [N, T, d] on their way back.
    Gradient
}

checked_struct! {
    /// A tensor on its way; the payload follows the header.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct TensorFrame {
        /// Where it goes.
        pub to: Address => nested,
        /// What the payload holds.
        pub tensor: TensorMeta => described,
    }
}

checked_struct! {
    /// Where a tensor of pipeline mode goes: to the part of the model at `hop`, in this plan, for this step.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    pub struct Address {
        /// Number of the plan. Rises at every change of who holds what.
        pub epoch: u64 => counter,
        /// Optimizer step the pass belongs to, from 0. A validation pass carries the number of steps done.
        pub step: u64 => counter,
        /// Which pass over the model.
        pub pass: Pass => nested,
        /// Pipeline position of the receiver, whichever way the tensor goes: see [`crate::spec::Hop`].
        pub hop: u32 => at_most(limits::HOPS as u64),
    }
}

/// Which pass over the model a tensor belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Pass {
    /// One of the M micro-batches of a training step: forward and backward.
    Train {
        /// From 0, below M.
        micro_batch: u32,
    },
    /// A batch of the held-out split: forward only.
    Validate {
        /// From 0.
        batch: u32,
    },
}

impl Checked for Pass {
    fn check(&self) -> RuleResult {
        match self {
            Pass::Train { micro_batch } => {
                at_most(limits::LOSSES as u64)(micro_batch).map_err(|error| error.within("micro_batch"))
            }
            Pass::Validate { batch } => {
                at_most(limits::VALIDATION_BATCHES)(batch).map_err(|error| error.within("batch"))
            }
        }
    }
}
