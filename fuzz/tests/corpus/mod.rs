//! The files in `corpus/`.

use std::{fs, path::PathBuf};

/// An input that is kept.
pub struct Seed {
    pub name: String,
    pub bytes: Vec<u8>,
}

impl Seed {
    /// Whether it once broke its target; else it was made by our own code.
    pub fn is_found(&self) -> bool {
        self.name.starts_with("found-")
    }
}

/// The folder of a target's seeds.
pub fn folder(target: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target)
}

/// The seeds of a target, in the order of their names.
pub fn of(target: &str) -> Vec<Seed> {
    let mut seeds: Vec<Seed> = fs::read_dir(folder(target))
        .into_iter()
        .flatten()
        .map(|entry| entry.unwrap())
        .map(|entry| Seed {
            name: entry.file_name().into_string().unwrap(),
            bytes: fs::read(entry.path()).unwrap(),
        })
        .collect();
    seeds.sort_by(|a, b| a.name.cmp(&b.name));
    seeds
}
