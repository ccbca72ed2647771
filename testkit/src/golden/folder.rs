//! Where the golden vectors lie, and whether they are all there.

use std::path::{Path, PathBuf};

use super::GoldenError;

/// What the repository's own folder must hold: one set at least whose name begins so.
const SETS: [(&str, &str); 6] = [
    ("adamw.json", "`adamw.json`"),
    ("schedule.json", "`schedule.json`"),
    ("aggregate.json", "`aggregate.json`"),
    ("decode.json", "`decode.json`"),
    ("block-", "a set `block-*.json`"),
    ("gpt2-", "a set `gpt2-*.json`"),
];

/// A folder of golden vectors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Folder {
    /// Where it lies.
    pub path: PathBuf,
    /// Names of its files, ordered.
    pub names: Vec<String>,
}

impl Folder {
    /// A file's bytes by its name; None if there is no such file.
    pub fn read(&self, name: &str) -> Option<Vec<u8>> {
        std::fs::read(self.path.join(name)).ok()
    }
}

/// The folder that COHORT_GOLDEN names, by default the repository's own, which must be whole.
///
/// # Errors
///
/// [`GoldenError::Folder`] if it cannot be listed, [`GoldenError::Sets`] naming what the repository's own lacks.
pub fn folder() -> Result<Folder, GoldenError> {
    let path = std::env::var_os("COHORT_GOLDEN").map_or_else(own, PathBuf::from);
    let failed = |error: std::io::Error| GoldenError::Folder {
        folder: path.display().to_string(),
        reason: error.to_string(),
    };
    let mut names = Vec::new();
    for entry in std::fs::read_dir(&path).map_err(failed)? {
        names.push(entry.map_err(failed)?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    if is_own(&path) {
        require_all(&names)?;
    }
    Ok(Folder { path, names })
}

/// Whether `path` is the repository's own folder of golden vectors.
pub fn is_own(path: &Path) -> bool {
    // In a browser there are no files: paths are compared as they are spelt.
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    real(path) == real(&own())
}

/// Whether every set that the repository has is among the names of these files.
///
/// # Errors
///
/// [`GoldenError::Sets`] naming what is missing.
pub fn require_all<S: AsRef<str>>(names: &[S]) -> Result<(), GoldenError> {
    let there = |begin: &str| {
        names.iter().map(AsRef::as_ref).any(|name: &str| name.starts_with(begin) && name.ends_with(".json"))
    };
    let missing: Vec<&str> =
        SETS.iter().filter(|(begin, _)| !there(begin)).map(|(_, described)| *described).collect();
    if missing.is_empty() { Ok(()) } else { Err(GoldenError::Sets(missing.join(", "))) }
}

fn own() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).join("tests").join("golden")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_that_is_missing_is_named() {
        let all = [
            "adamw.json",
            "aggregate.json",
            "block-v256.json",
            "decode.json",
            "gpt2-tied.json",
            "schedule.json",
        ];
        assert_eq!(require_all(&all), Ok(()));
        let lacking = [
            "aggregate.json",
            "block-v256.train.safetensors",
            "decode.json",
            "gpt2-tied.json",
            "schedule.json",
        ];
        let said = "`adamw.json`, a set `block-*.json`".to_owned();
        assert_eq!(require_all(&lacking), Err(GoldenError::Sets(said)));
    }

    #[test]
    fn the_repositorys_own_folder_is_known() {
        assert!(is_own(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden")));
        assert!(!is_own(Path::new(env!("CARGO_MANIFEST_DIR"))));
    }
}
