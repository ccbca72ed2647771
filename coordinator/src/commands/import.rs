//! `cohort import`: a GPT-2 of Hugging Face's as a checkpoint.

use std::path::PathBuf;

use crate::model_folder;

/// What the command line says.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Folder that transformers has saved: config.json, model.safetensors or its parts, and the tokenizer's files.
    folder: PathBuf,
    /// New folder for the checkpoint, for `cohort generate` and for model.from in a run.toml.
    #[arg(long)]
    out: PathBuf,
}

pub(super) fn command(arguments: &Arguments) -> anyhow::Result<()> {
    let Arguments { folder, out } = arguments;
    let model = model_folder::read(folder)?;
    model_folder::export::transformers(&model, out)?;
    println!(
        "{}: {} parameters; begin a run with it by [model] from = {:?}",
        out.display(),
        model.model.parameters(),
        out.display().to_string()
    );
    Ok(())
}
