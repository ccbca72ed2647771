//! Folders of models with drawn weights.

use std::{fs, path::Path};

use anyhow::Result;
use engine::{
    Device,
    checkpoint::Checkpoint,
    generate::{Decoder, Request},
    parameters::ParameterSet,
};
use futures::executor::block_on;
use protocol::spec::{Hop, ModelSpec};

fn draw(model: &ModelSpec, seed: u64) -> ParameterSet {
    ParameterSet::draw(model, &[Hop { index: 0, part: model.whole() }], seed, &Device::Cpu)
}

/// The folder of a model of bytes with the weights that this seed draws.
pub fn save(folder: &Path, model: &ModelSpec, seed: u64) -> Result<()> {
    let Checkpoint { config, weights } = block_on(Checkpoint::new(model, &draw(model, seed)))?;
    fs::create_dir_all(folder)?;
    fs::write(folder.join("config.json"), config)?;
    fs::write(folder.join("model.safetensors"), weights)?;
    fs::write(folder.join("tokenizer.cohort.json"), r#"{"kind": "bytes"}"#)?;
    Ok(())
}

/// What such a model writes in one process.
pub fn text(model: &ModelSpec, seed: u64, request: Request) -> Result<String> {
    let mut decoder = Decoder::new(model, draw(model, seed), &Device::Cpu)?;
    let tokens = block_on(decoder.write(request, |_| true))?;
    let bytes: Vec<u8> = tokens.into_iter().map(|token| token as u8).collect();
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
