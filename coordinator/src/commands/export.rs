//! `cohort export`: a checkpoint for other programs.

use std::path::PathBuf;

use anyhow::bail;

use crate::{
    model_folder::{
        self, blocks, export,
        gguf::{self, Precision},
    },
    storage::{checkpoint, write_atomically},
};

/// What the command line says.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Folder of a checkpoint, or of a run, for its newest.
    checkpoint: PathBuf,
    /// safetensors: a folder for transformers, or in block mode one with the layout of docs/block-checkpoint.md; gguf: one
    /// with model.gguf, for llama.cpp, of pipeline mode only.
    #[arg(long, value_enum)]
    format: Format,
    /// New folder to write.
    #[arg(long)]
    out: PathBuf,
    /// Of the matrices in a GGUF file.
    #[arg(long, value_enum, default_value_t = Precision::F32)]
    precision: Precision,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    Safetensors,
    Gguf,
}

pub(super) fn command(arguments: &Arguments) -> anyhow::Result<()> {
    let Arguments { checkpoint, format, out, precision } = arguments;
    let place = checkpoint::of_folder(checkpoint)?;
    match (blocks::run(&place)?, format) {
        (Some(run), Format::Safetensors) => blocks::write(&blocks::read(&place, run)?, out)?,
        (Some(_), Format::Gguf) => bail!(
            "{} is of a run in block mode, and GGUF has no architecture that describes it: llama.cpp could not compute it; \
             export it with --format safetensors, whose layout docs/block-checkpoint.md describes",
            place.display()
        ),
        (None, Format::Safetensors) => export::transformers(&model_folder::read(&place)?, out)?,
        (None, Format::Gguf) => {
            let name = out.file_name().map_or_else(|| "cohort".into(), |name| name.to_string_lossy());
            let file = gguf::file(&model_folder::read(&place)?, &name, *precision)?;
            export::folder(out, |half| write_atomically(&half.join("model.gguf"), &file))?;
        }
    }
    println!("{}", out.display());
    Ok(())
}
