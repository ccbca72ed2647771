//! The folder of a run: made, taken over, or refused.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use super::write_atomically;
use crate::{
    config::RunConfig,
    data::{Dataset, tokenizer::SavedTokenizer},
    server::token::random_token,
};

#[derive(Debug, thiserror::Error)]
pub enum DataDirError {
    #[error("the data directory {path} cannot be written ({source}); name another with --data-dir")]
    Unwritable { path: PathBuf, source: io::Error },
    #[error(
        "{path} already holds a run; go on with it by adding --resume, or name another folder with --data-dir"
    )]
    Occupied { path: PathBuf },
    #[error("{path} holds no run to resume; leave --resume out to start one")]
    Nothing { path: PathBuf },
    #[error("{path} holds no run; give the data directory of one, such as cohort-data/<name of the run>")]
    Empty { path: PathBuf },
    #[error(
        "{path} holds a run with another {what}; give the same run.toml as before, or name another folder with --data-dir"
    )]
    OtherRun { path: PathBuf, what: &'static str },
    #[error("{path} is damaged: {detail}")]
    Damaged { path: PathBuf, detail: String },
}

/// The folder of one run.
#[derive(Debug, Clone)]
pub struct DataDir {
    root: PathBuf,
}

impl DataDir {
    /// Make the folder, or with `resume` take over the run in it.
    pub fn open(root: &Path, config: &RunConfig, resume: bool) -> Result<Self, DataDirError> {
        let dir = Self { root: root.to_path_buf() };
        let saved = dir.config_file();
        match (saved.exists(), resume) {
            (true, false) => return Err(DataDirError::Occupied { path: dir.root }),
            (false, true) => return Err(DataDirError::Nothing { path: dir.root }),
            (true, true) => dir.same_run(config)?,
            (false, false) => {}
        }
        let unwritable = |source| DataDirError::Unwritable { path: dir.root.clone(), source };
        for folder in [dir.tokens(), dir.blobs(), dir.snapshots(), dir.checkpoints()] {
            fs::create_dir_all(folder).map_err(unwritable)?;
        }
        Ok(dir)
    }

    /// The run that is kept in a folder, to look at it while a coordinator may be at work there.
    pub fn look_into(root: &Path) -> Result<(RunConfig, Self), DataDirError> {
        let dir = Self { root: root.to_path_buf() };
        let path = dir.config_file();
        // A folder with a run.toml of the organizer's own is none yet.
        if !path.exists() || !dir.tokenizer_file().exists() {
            return Err(DataDirError::Empty { path: dir.root });
        }
        let config = dir.read_config()?;
        Ok((config, dir))
    }

    fn read_config(&self) -> Result<RunConfig, DataDirError> {
        let path = self.config_file();
        let damaged = |detail: String| DataDirError::Damaged { path: path.clone(), detail };
        let text = fs::read_to_string(&path).map_err(|e| damaged(e.to_string()))?;
        RunConfig::parse(&text, &path.display().to_string())
            .map_err(|faults| damaged(faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")))
    }

    /// Note the run. Done last, once everything it needs is there: a folder without it holds no run.
    pub fn note_run(
        &self,
        config: &RunConfig,
        dataset: &Dataset,
        tokenizer: &SavedTokenizer,
    ) -> Result<(), DataDirError> {
        let unwritable = |source| DataDirError::Unwritable { path: self.root.clone(), source };
        let damaged = |detail: String| DataDirError::Damaged { path: self.root.clone(), detail };
        let tokenizer = serde_json::to_vec_pretty(tokenizer).map_err(|e| damaged(e.to_string()))?;
        write_atomically(&self.tokenizer_file(), &tokenizer).map_err(unwritable)?;
        write_atomically(&self.text_file(), dataset.source_hash().as_bytes()).map_err(unwritable)?;
        let text = config.to_toml().map_err(|e| damaged(e.to_string()))?;
        write_atomically(&self.config_file(), text.as_bytes()).map_err(unwritable)
    }

    /// What decides the weights must be as before; stages, snapshots and the session may change.
    fn same_run(&self, config: &RunConfig) -> Result<(), DataDirError> {
        let before = self.read_config()?;
        let other = |what| DataDirError::OtherRun { path: self.root.clone(), what };
        if before.mode != config.mode {
            return Err(other("mode"));
        }
        if before.blocks != config.blocks {
            return Err(other("[blocks]"));
        }
        if before.rounds.local_steps != config.rounds.local_steps {
            return Err(other("rounds.local_steps"));
        }
        if before.model != config.model {
            return Err(other("[model]"));
        }
        if before.data != config.data {
            return Err(other("[data]"));
        }
        if before.training != config.training {
            return Err(other("[training]"));
        }
        Ok(())
    }

    /// Whether the text is the one that the run began with.
    ///
    /// # Errors
    /// [`DataDirError::OtherRun`] when it has changed.
    pub fn same_text(&self, dataset: &Dataset) -> Result<(), DataDirError> {
        match fs::read_to_string(self.text_file()) {
            Ok(before) if before.trim() != dataset.source_hash() => {
                Err(DataDirError::OtherRun { path: self.root.clone(), what: "text in data.source" })
            }
            // A folder of an older program does not know.
            _ => Ok(()),
        }
    }

    fn text_file(&self) -> PathBuf {
        self.root.join("text.blake3")
    }

    /// Bearer token of the organizer, the same for the life of the folder.
    pub fn organizer_token(&self) -> Result<String, DataDirError> {
        let path = self.root.join("organizer.token");
        if let Ok(token) = fs::read_to_string(&path)
            && token.trim().len() == 64
        {
            return Ok(token.trim().to_string());
        }
        let token = random_token();
        write_atomically(&path, token.as_bytes())
            .map_err(|source| DataDirError::Unwritable { path: self.root.clone(), source })?;
        Ok(token)
    }

    fn config_file(&self) -> PathBuf {
        self.root.join("run.toml")
    }

    fn tokenizer_file(&self) -> PathBuf {
        self.root.join("tokenizer.json")
    }

    pub fn event_log(&self) -> PathBuf {
        self.root.join("events.sqlite")
    }

    pub fn tokens(&self) -> PathBuf {
        self.root.join("tokens")
    }

    pub fn blobs(&self) -> PathBuf {
        self.root.join("blobs")
    }

    pub fn snapshots(&self) -> PathBuf {
        self.root.join("snapshots")
    }

    pub fn checkpoints(&self) -> PathBuf {
        self.root.join("checkpoints")
    }
}
