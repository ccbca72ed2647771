//! What must hold between `model.from` and the fields that say the same.

use super::{begun::Begun, read::Reading, run_config::RunConfig};
use crate::data::tokenizer::TokenizerKind;

/// Notes what cannot be used, and fields beside it that say something else.
pub(super) fn check(begun: &Begun, reading: &mut Reading<'_>, config: &RunConfig) {
    if let Some(fault) = &begun.fault {
        reading.fault("model.from", fault.clone());
    }
    let Some(sizes) = begun.sizes else { return };
    let model = &config.model;
    for (field, found, needed) in [
        ("model.layers", model.layers, sizes.layers),
        ("model.width", model.width, sizes.width),
        ("model.heads", model.heads, sizes.heads),
        ("model.context", model.context, sizes.context),
    ] {
        differs(reading, field, &found, &needed);
    }
    differs(reading, "model.tie_embeddings", &model.tie_embeddings, &sizes.tie_embeddings);
    if let Some(kind) = begun.tokenizer {
        let quoted = |kind: TokenizerKind| format!("\"{}\"", kind.name());
        differs(reading, "data.tokenizer", &quoted(config.data.tokenizer), &quoted(kind));
    }
}

fn differs<T: PartialEq + std::fmt::Display>(reading: &mut Reading<'_>, field: &str, found: &T, needed: &T) {
    reading.rule(&[field, "model.from"], || {
        (found != needed)
            .then(|| format!("is {found}, but {needed} in the model of model.from; leave it out"))
    });
}
