//! `cohort export`: a checkpoint for other programs.

use std::path::PathBuf;

use crate::{
    model_folder::{
        self, export,
        gguf::{self, Precision},
    },
    storage::{checkpoint, write_atomically},
};

/// What the command line says.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Folder of a checkpoint, or of a run, for its newest.
    checkpoint: PathBuf,
    /// safetensors: a folder for transformers; gguf: one with model.gguf, for llama.cpp.
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
    anyhow::ensure!(
        checkpoint::block_run(&place).is_none(),
        "{} is of a run in block mode, which neither transformers nor llama.cpp can compute; its model.safetensors is \
         laid out as docs/blocks.md says",
        place.display()
    );
    let model = model_folder::read(&place)?;
    match format {
        Format::Safetensors => export::transformers(&model, out)?,
        Format::Gguf => {
            let name = out.file_name().map_or_else(|| "cohort".into(), |name| name.to_string_lossy());
            let file = gguf::file(&model, &name, *precision)?;
            export::folder(out, |half| write_atomically(&half.join("model.gguf"), &file))?;
        }
    }
    println!("{}", out.display());
    Ok(())
}
