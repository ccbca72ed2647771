//! What `model.from` settles: the shapes and the tokenizer of the model that a run begins with.

use std::path::{Path, PathBuf};

use protocol::spec::ModelSpec;

use crate::{
    data::{gpt2::VOCABULARY_FILE, tokenizer::TokenizerKind},
    model_folder,
};

/// Shapes in a folder's `config.json`, without the vocabulary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sizes {
    pub layers: u32,
    pub width: u32,
    pub heads: u32,
    pub context: u32,
    pub tie_embeddings: bool,
}

/// Defaults from the folder; none where there is no such folder, or it is not looked at.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Begun {
    pub sizes: Option<Sizes>,
    pub tokenizer: Option<TokenizerKind>,
    pub tokenizer_files: Option<PathBuf>,
    /// Why the folder cannot be used.
    pub fault: Option<String>,
}

impl Begun {
    /// Of the folder that a run begins with.
    pub(super) fn look_into(folder: &Path) -> Begun {
        let looked = || -> Result<Begun, model_folder::FolderError> {
            let ModelSpec { positions, width, heads, layers, tie_embeddings, .. } =
                model_folder::model(folder)?;
            let sizes = Sizes { layers, width, heads, context: positions, tie_embeddings };
            let tokenizer = model_folder::tokenizer(folder)?.kind();
            // Of a tokenizer.json alone no files can be named.
            let files = tokenizer == TokenizerKind::Gpt2 && folder.join(VOCABULARY_FILE).is_file();
            Ok(Begun {
                sizes: Some(sizes),
                tokenizer: Some(tokenizer),
                tokenizer_files: files.then(|| folder.to_path_buf()),
                fault: (tokenizer == TokenizerKind::Gpt2 && !files).then(|| {
                    format!(
                        "{} has its tokenizer in tokenizer.json alone; make a checkpoint of it with `cohort import`",
                        folder.display()
                    )
                }),
            })
        };
        looked().unwrap_or_else(|error| Begun { fault: Some(error.to_string()), ..Begun::default() })
    }
}
