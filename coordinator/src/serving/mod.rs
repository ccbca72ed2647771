//! Texts that the model writes for whoever asks, in the coordinator's own process from the newest snapshot.
//!
//! ```text
//! request.rs    what is asked for, read from OpenAI's JSON and checked
//! desk.rs       where requests are handed in, and taken up by the writer
//! queue.rs      whose text is next
//! writer.rs     the thread that has the model: loads it, steps it, tells tokens
//! model.rs      a model with its checkpoint
//! pieces.rs     tokens as whole characters, up to a stop
//! samples.rs    what the model wrote at several ages
//! answer.rs     the answers in OpenAI's shape
//! ```
//!
//! The routes are in `server/completions.rs`.

mod answer;
mod desk;
mod model;
mod pieces;
mod queue;
mod request;
mod samples;
mod writer;

use std::sync::Arc;

pub(crate) use answer::Answer;
pub(crate) use desk::{Desk, Refused, Texts, Told};
use protocol::{
    serving::{ModelView, Place, Samples, ServingView},
    spec::ModelSpec,
};
pub(crate) use queue::Most;
pub(crate) use request::{Bounds, Fault, Request};
pub(crate) use writer::{Writer, WriterThread};

use crate::{
    config::{ServingConfig, ServingPlace},
    data::tokenizer::Tokenizer,
};

/// What the routes need to know.
pub(crate) struct Serving {
    /// Name of the run, by which requests name the model.
    pub(crate) name: String,
    pub(crate) settings: ServingConfig,
    pub(crate) model: ModelSpec,
    pub(crate) tokenizer: Arc<Tokenizer>,
    pub(crate) desk: Arc<Desk>,
}

impl Serving {
    /// What the pages are told.
    pub(crate) fn view(&self) -> ServingView {
        let state = self.desk.state();
        let model = state.step.map(|step| ModelView {
            name: self.name.clone(),
            parameters: self.model.parameters(),
            positions: self.model.positions,
            step,
        });
        let place = match self.settings.r#where {
            ServingPlace::Off => Place::Off,
            ServingPlace::Coordinator => Place::Coordinator,
        };
        ServingView {
            place,
            open: self.settings.open,
            on: state.on,
            model,
            why: self.desk.why(),
            most_tokens: self.settings.most_tokens,
            waiting: state.waiting as u32,
        }
    }

    /// What the model wrote at several ages.
    pub(crate) fn samples(&self) -> Samples {
        self.desk.samples()
    }

    /// What requests are checked against.
    pub(crate) fn bounds(&self) -> Bounds<'_> {
        Bounds {
            model: &self.name,
            tokenizer: &self.tokenizer,
            positions: self.model.positions as usize,
            most_tokens: u64::from(self.settings.most_tokens),
        }
    }
}
