//! The folder of a run: made, taken over, or refused.

use std::{
    fs::{self, File, TryLockError},
    io::{self, Read, Seek, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{TOKENIZER, same_run, sweep_temporary, write_atomically};
use crate::{
    config::RunConfig,
    data::{Dataset, corpus::Source, tokenizer::SavedTokenizer},
    run_folder,
    server::token::random_token,
};

#[derive(Debug, thiserror::Error)]
pub(crate) enum DataDirError {
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
        "{path} holds a run with another {what}; give the same as before, or name another folder with --data-dir"
    )]
    OtherRun { path: PathBuf, what: String },
    #[error(
        "{path} is in use by another coordinator{who}; end that one first, or name another folder with --data-dir"
    )]
    InUse { path: PathBuf, who: String },
    #[error("{path} is damaged: {detail}")]
    Damaged { path: PathBuf, detail: String },
}

/// The file whose lock says that a coordinator is at work in the folder; it holds the process id of that coordinator.
const LOCK: &str = "coordinator.lock";

/// The folder of one run.
#[derive(Debug, Clone)]
pub(crate) struct DataDir {
    root: PathBuf,
    /// Locked while any clone of this lives; None where the folder is only looked into. The system releases the lock
    /// when the process ends, however it ends.
    _lock: Option<Arc<File>>,
}

impl DataDir {
    /// Makes the folder, or with `resume` takes over the run in it. The folder is this process's alone from then on, and
    /// what saves of a killed process have left in it is removed.
    ///
    /// # Errors
    /// A folder that cannot be written, that another coordinator uses, or whose run is not this one.
    pub(crate) fn open(root: &Path, config: &RunConfig, resume: bool) -> Result<Self, DataDirError> {
        let mut dir = Self { root: root.to_path_buf(), _lock: None };
        let unwritable = |source| DataDirError::Unwritable { path: root.into(), source };
        if resume && !dir.config_file().exists() {
            return Err(DataDirError::Nothing { path: dir.root });
        }
        // A folder of another use, which holds a run.toml, gets no lock file.
        if !resume && dir.config_file().exists() && !root.join(LOCK).exists() {
            return Err(DataDirError::Occupied { path: dir.root });
        }
        fs::create_dir_all(root).map_err(unwritable)?;
        dir = Self { _lock: Some(Arc::new(lock(root)?)), ..dir };
        match (dir.config_file().exists(), resume) {
            (true, false) => return Err(DataDirError::Occupied { path: dir.root }),
            (true, true) => dir.same_run(config)?,
            (false, _) => {}
        }
        for folder in [dir.tokens(), dir.blobs(), dir.snapshots(), dir.checkpoints()] {
            fs::create_dir_all(&folder).map_err(unwritable)?;
            sweep_temporary(&folder);
        }
        sweep_temporary(root);
        Ok(dir)
    }

    /// The run that is kept in a folder, to look at it while a coordinator may be at work there.
    pub(crate) fn look_into(root: &Path) -> Result<(RunConfig, Self), DataDirError> {
        let dir = Self { root: root.to_path_buf(), _lock: None };
        if !run_folder::is_of_a_run(root) {
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
    pub(crate) fn note_run(
        &self,
        config: &RunConfig,
        dataset: &Dataset,
        tokenizer: &SavedTokenizer,
    ) -> Result<(), DataDirError> {
        let unwritable = |source| DataDirError::Unwritable { path: self.root.clone(), source };
        let damaged = |detail: String| DataDirError::Damaged { path: self.root.clone(), detail };
        let tokenizer = serde_json::to_vec_pretty(tokenizer).map_err(|e| damaged(e.to_string()))?;
        for (name, text) in dataset.tokenizer.files() {
            let folder = self.root.join(TOKENIZER);
            fs::create_dir_all(&folder).map_err(unwritable)?;
            write_atomically(&folder.join(name), text.as_bytes()).map_err(unwritable)?;
        }
        write_atomically(&self.tokenizer_file(), &tokenizer).map_err(unwritable)?;
        write_atomically(&self.text_file(), dataset.source_hash().as_bytes()).map_err(unwritable)?;
        let text = with_absolute_paths(config).to_toml().map_err(|e| damaged(e.to_string()))?;
        write_atomically(&self.config_file(), text.as_bytes()).map_err(unwritable)
    }

    /// What decides the weights must be as before; [`same_run`] says what may change.
    fn same_run(&self, config: &RunConfig) -> Result<(), DataDirError> {
        let before = self.read_config()?;
        let damaged =
            |e: toml::ser::Error| DataDirError::Damaged { path: self.root.clone(), detail: e.to_string() };
        match same_run::differences(&before, config).map_err(damaged)? {
            Some(what) => Err(DataDirError::OtherRun { path: self.root.clone(), what }),
            None => Ok(()),
        }
    }

    /// Whether the text and its tokenizer are those that the run began with, wherever they lie now.
    ///
    /// # Errors
    /// [`DataDirError::OtherRun`] when one has changed.
    pub(crate) fn same_data(&self, dataset: &Dataset) -> Result<(), DataDirError> {
        let other = |what: &str| DataDirError::OtherRun { path: self.root.clone(), what: what.to_owned() };
        if self.text_hash().is_some_and(|before| before != dataset.source_hash()) {
            return Err(other("text in data.source (it has changed)"));
        }
        match self.saved_tokenizer() {
            Some(before) if before != dataset.tokenizer.save() => {
                Err(other("vocabulary in data.tokenizer_files (it has changed)"))
            }
            _ => Ok(()),
        }
    }

    /// The folder of the BPE files that the run began with; None where its tokenizer has none.
    pub(crate) fn tokenizer_files(&self) -> Option<PathBuf> {
        let folder = self.root.join(TOKENIZER);
        folder.exists().then_some(folder)
    }

    /// blake3 of the run's text, in hexadecimal; None where the folder does not say.
    pub(crate) fn text_hash(&self) -> Option<String> {
        let text = fs::read_to_string(self.text_file()).ok()?;
        Some(text.trim().to_owned())
    }

    /// The run's tokenizer; None where the folder does not say.
    pub(crate) fn saved_tokenizer(&self) -> Option<SavedTokenizer> {
        serde_json::from_slice(&fs::read(self.tokenizer_file()).ok()?).ok()
    }

    /// The folder itself.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    fn text_file(&self) -> PathBuf {
        self.root.join("text.blake3")
    }

    /// Bearer token of the organizer, the same for the life of the folder.
    pub(crate) fn organizer_token(&self) -> Result<String, DataDirError> {
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
        run_folder::config_file(&self.root)
    }

    fn tokenizer_file(&self) -> PathBuf {
        run_folder::tokenizer_file(&self.root)
    }

    pub(crate) fn event_log(&self) -> PathBuf {
        self.root.join("events.sqlite")
    }

    pub(crate) fn tokens(&self) -> PathBuf {
        self.root.join("tokens")
    }

    pub(crate) fn blobs(&self) -> PathBuf {
        self.root.join("blobs")
    }

    pub(crate) fn snapshots(&self) -> PathBuf {
        self.root.join("snapshots")
    }

    pub(crate) fn checkpoints(&self) -> PathBuf {
        self.root.join("checkpoints")
    }

    pub(crate) fn samples(&self) -> PathBuf {
        self.root.join("samples.json")
    }
}

/// The run as it is to be found again from any folder.
fn with_absolute_paths(config: &RunConfig) -> RunConfig {
    let mut config = config.clone();
    // A path that cannot be resolved has been read a moment ago: what is wrong with it shows when it is used.
    let absolute = |path: &mut PathBuf| {
        if let Ok(found) = path.canonicalize() {
            *path = found;
        }
    };
    if let Source::Path(path) = &mut config.data.source {
        absolute(path);
    }
    for path in [&mut config.data.tokenizer_files, &mut config.model.from].into_iter().flatten() {
        absolute(path);
    }
    config
}

/// Takes the folder for this process.
fn lock(root: &Path) -> Result<File, DataDirError> {
    let unwritable = |source| DataDirError::Unwritable { path: root.into(), source };
    let path = root.join(LOCK);
    let mut file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(&path)
        .map_err(unwritable)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut process = String::new();
            // Who it is is only a help; some systems do not let a locked file be read.
            let _ = file.read_to_string(&mut process);
            let who = match process.trim() {
                "" => String::new(),
                process => format!(" (process {process})"),
            };
            return Err(DataDirError::InUse { path: root.into(), who });
        }
        Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => {
            tracing::warn!(
                "the file system of {} has no locks: see to it that one coordinator uses it",
                root.display()
            );
        }
        Err(TryLockError::Error(error)) => return Err(unwritable(error)),
    }
    let note = |file: &mut File| {
        file.set_len(0)?;
        file.rewind()?;
        file.write_all(std::process::id().to_string().as_bytes())
    };
    note(&mut file).map_err(unwritable)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::tokenizer::TokenizerKind;

    fn config(source: &Path) -> RunConfig {
        let mut config = RunConfig::default();
        config.data.source = Source::Path(source.into());
        config
    }

    fn begin(root: &Path, config: &RunConfig) -> (DataDir, Dataset) {
        let dir = DataDir::open(root, config, false).unwrap();
        let dataset = Dataset::of_run(&config.data, &dir).unwrap();
        dir.note_run(config, &dataset, &dataset.tokenizer.save()).unwrap();
        (dir, dataset)
    }

    #[test]
    fn a_second_coordinator_is_refused_until_the_first_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("run");
        let first = DataDir::open(&root, &RunConfig::default(), false).unwrap();
        let words = DataDir::open(&root, &RunConfig::default(), false).unwrap_err().to_string();
        assert!(
            words.contains(&format!("in use by another coordinator (process {})", std::process::id())),
            "{words}"
        );
        drop(first);
        DataDir::open(&root, &RunConfig::default(), false).unwrap();
    }

    #[test]
    fn to_resume_where_nothing_is_makes_no_folder() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("mistyped");
        assert!(matches!(
            DataDir::open(&root, &RunConfig::default(), true),
            Err(DataDirError::Nothing { .. })
        ));
        assert!(!root.exists());
    }

    #[test]
    fn the_data_counts_and_not_where_it_lies() {
        let folder = tempfile::tempdir().unwrap();
        let [here, there] = ["here.txt", "there.txt"].map(|name| folder.path().join(name));
        for path in [&here, &there] {
            fs::write(path, "the same words\n".repeat(50)).unwrap();
        }
        let root = folder.path().join("run");
        drop(begin(&root, &config(&here)));
        let dir = DataDir::open(&root, &config(&there), true).unwrap();
        let data = |text: &Path| Dataset::of_run(&config(text).data, &dir).unwrap();
        dir.same_data(&data(&there)).unwrap();
        fs::write(&there, "other words\n".repeat(50)).unwrap();
        let words = dir.same_data(&data(&there)).unwrap_err().to_string();
        assert!(words.contains("data.source"), "{words}");
    }

    #[test]
    fn the_saved_run_finds_its_text_from_any_folder() {
        let folder = tempfile::tempdir().unwrap();
        let text = folder.path().join("a/../text.txt");
        fs::create_dir(folder.path().join("a")).unwrap();
        fs::write(&text, "words\n".repeat(50)).unwrap();
        let root = folder.path().join("run");
        drop(begin(&root, &config(&text)));
        let (saved, _) = DataDir::look_into(&root).unwrap();
        assert_eq!(saved.data.source, Source::Path(text.canonicalize().unwrap()));
        assert_eq!(saved.data.tokenizer, TokenizerKind::Bytes);
    }

    #[test]
    fn leftovers_of_killed_saves_are_removed_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        drop(DataDir::open(root, &RunConfig::default(), false).unwrap());
        fs::create_dir_all(root.join("checkpoints/.half-x1")).unwrap();
        fs::write(root.join("checkpoints/.half-x1/model.safetensors"), "half").unwrap();
        fs::write(root.join("snapshots/.tmpAb12"), "half").unwrap();
        fs::write(root.join("snapshots/step-00000001.json"), "{}").unwrap();
        fs::write(root.join(".mine"), "the organizer's own").unwrap();
        drop(DataDir::open(root, &RunConfig::default(), false).unwrap());
        for (path, stays) in [
            ("checkpoints/.half-x1", false),
            ("snapshots/.tmpAb12", false),
            ("snapshots/step-00000001.json", true),
            (".mine", true),
        ] {
            assert_eq!(root.join(path).exists(), stays, "{path}");
        }
    }
}
