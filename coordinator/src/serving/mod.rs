//! Texts that the model writes for whoever asks: in the coordinator's own process from the newest snapshot, or on the
//! workers that hold it.
//!
//! ```text
//! request.rs    what is asked for, read from OpenAI's JSON and checked
//! desk.rs       where requests are handed in, and taken up by the writer
//! queue.rs      whose text is next
//! writer.rs     the thread that has the texts: steps the model, tells tokens
//! model.rs      a model with its checkpoint, or on the workers
//! over_workers.rs, traversals.rs    a model on the workers: its texts here, one traversal of the stages at a time
//! pieces.rs     tokens as whole characters, up to a stop
//! samples.rs    what the model wrote at several ages
//! answer.rs     the answers in OpenAI's shape
//! ```
//!
//! The routes are in `server/completions.rs`.

mod answer;
mod desk;
mod model;
mod over_workers;
mod pieces;
mod queue;
mod request;
mod samples;
mod traversals;
mod writer;

use std::sync::Arc;

use engine::gpt2::Cache;

pub(crate) use answer::Answer;
pub(crate) use desk::{Asked, Desk, Refused, Texts, Told};
pub(crate) use over_workers::ROWS;
use protocol::{
    serving::{ModelView, Place, Samples, ServingView},
    spec::RunSpec,
};
pub(crate) use queue::Most;
pub(crate) use request::{Bounds, Fault, Request};
pub(crate) use traversals::Traversals;
pub(crate) use writer::{Source, Writer, WriterThread};

use crate::{
    config::{ServingConfig, ServingPlace},
    data::tokenizer::Tokenizer,
};

/// What the routes need to know.
pub(crate) struct Serving {
    /// Name of the run, by which requests name the model.
    pub(crate) name: String,
    pub(crate) settings: ServingConfig,
    pub(crate) run: RunSpec,
    /// Its numbers.
    pub(crate) parameters: u64,
    pub(crate) tokenizer: Arc<Tokenizer>,
    pub(crate) desk: Arc<Desk>,
    /// What the workers write.
    pub(crate) traversals: Arc<Traversals>,
}

impl Serving {
    /// What the pages are told.
    pub(crate) fn view(&self) -> ServingView {
        let state = self.desk.state();
        let model = state.step.map(|step| ModelView {
            name: self.name.clone(),
            parameters: self.parameters,
            positions: self.run.model.positions,
            step,
            sweep: self.sweep(),
        });
        let place = match self.settings.r#where {
            ServingPlace::Off => Place::Off,
            ServingPlace::Coordinator => Place::Coordinator,
            ServingPlace::Workers => Place::Workers,
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

    /// Tokens that one sweep may write at most, in block mode.
    fn sweep(&self) -> Option<u32> {
        self.run.blocks.as_ref().map(|_| self.run.context)
    }

    /// Bytes of keys and values of a text of so many tokens: block mode keeps none.
    pub(crate) fn cache_bytes(&self, tokens: usize) -> u64 {
        let model = &self.run.model;
        match self.run.blocks {
            Some(_) => 0,
            None => Cache::bytes(model, &model.whole(), tokens.min(model.positions as usize)),
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
            positions: self.run.model.positions as usize,
            sweep: self.sweep(),
            most_tokens: u64::from(self.settings.most_tokens),
        }
    }
}
