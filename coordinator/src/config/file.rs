//! A `run.toml` on disk: its encoding, and the files it names.

use std::{fs, path::Path};

use super::{begun::Begun, fault::ConfigFault, read::Reading, run_config::RunConfig};
use crate::data::{
    corpus::Source,
    gpt2::{MERGES_FILE, VOCABULARY_FILE},
};

impl RunConfig {
    /// Reads the file at `path` and checks it, also against the disk: the corpus and the tokenizer's files must be
    /// there. Relative paths in it count from its own folder; here they get it in front.
    ///
    /// # Errors
    /// Everything that is wrong with it, in the order of the lines; or one fault, if it cannot be read.
    pub fn load(path: &Path) -> Result<Self, Vec<ConfigFault>> {
        let file_name = path.display().to_string();
        let unreadable = |line, message| {
            vec![ConfigFault { file: file_name.clone(), line, field: String::new(), message }]
        };
        let bytes = fs::read(path).map_err(|e| {
            unreadable(None, format!("cannot be read ({e}); give the path of a run.toml in UTF-8"))
        })?;
        let text = utf8(&bytes).map_err(|(line, message)| unreadable(line, message))?;
        let mut reading = Reading::new(text, &file_name);
        let folder = path.parent().unwrap_or(Path::new(""));
        let from = reading.text("model", "from").map(|from| folder.join(from));
        let begun = from.as_deref().map(Begun::look_into).unwrap_or_default();
        let mut config = Self::checked(&mut reading, &begun);
        config.model.from = from.filter(|_| config.model.from.is_some());
        if let Source::Path(source) = &mut config.data.source {
            *source = folder.join(&*source);
            if !source.exists() {
                let message = format!(
                    "there is no file or folder {}; give the path of a text, or \"webster\" for the built-in one",
                    source.display()
                );
                reading.fault("data.source", message);
            }
        }
        if let Some(files) = &mut config.data.tokenizer_files {
            if reading.is_written("data.tokenizer_files") {
                *files = folder.join(&*files);
            }
            for [file, other] in [["encoder.json", VOCABULARY_FILE], ["vocab.bpe", MERGES_FILE]]
                .map(|names| names.map(|name| files.join(name)))
            {
                if !file.is_file() && !other.is_file() {
                    let message = format!(
                        "there is no file {}; give the folder of encoder.json and vocab.bpe, or leave the field out",
                        file.display()
                    );
                    reading.fault("data.tokenizer_files", message);
                }
            }
        }
        reading.finish(config)
    }
}

/// The text in a file's bytes; else the line of the first byte that is wrong, and what to do. A byte order mark of
/// UTF-8 stays: TOML allows it.
fn utf8(bytes: &[u8]) -> Result<&str, (Option<usize>, String)> {
    if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) {
        return Err((None, "is UTF-16, as some editors and PowerShell write; save it as UTF-8".to_owned()));
    }
    std::str::from_utf8(bytes).map_err(|error| {
        let before = &bytes[..error.valid_up_to()];
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        (Some(line), "has a character that is not UTF-8; save the file as UTF-8".to_owned())
    })
}
