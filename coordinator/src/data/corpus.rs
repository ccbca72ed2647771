//! Where text comes from: a file, a folder, or the dictionary inside the binary.

use std::{
    fmt,
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
};

use blake3::{Hash, Hasher};
use flate2::read::ZlibDecoder;

mod webster {
    include!(concat!(env!("OUT_DIR"), "/webster.rs"));
}

/// Stands between the files of a folder.
const SEPARATOR: &[u8] = b"\n\n";

/// `data.source` of `run.toml`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// Webster's unabridged dictionary (1913, public domain), from the crate `webster`: `WORD`, its definition
    /// and an empty line for each of 86,036 words, sorted.
    Webster,
    /// A file, or a folder of files.
    Path(PathBuf),
}

impl fmt::Display for Source {
    /// What a volunteer reads after "is learning from"; of a path only its name, the rest is the organizer's own.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Webster => write!(f, "Webster's dictionary of 1913"),
            Source::Path(path) => {
                write!(f, "the text in {}", path.file_name().unwrap_or(path.as_os_str()).display())
            }
        }
    }
}

/// Why a corpus cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum CorpusError {
    #[error("data.source: there is no file or folder {path}; give the path of a text, or \"webster\"", path = path.display())]
    Missing { path: PathBuf },
    #[error("data.source: {path} has no text in it; give a file or folder with some", path = path.display())]
    Empty { path: PathBuf },
    #[error("data.source: cannot read {path}: {error}; make it readable for this user", path = path.display())]
    Unreadable { path: PathBuf, error: io::Error },
    #[error(
        "data.source: {name} is not UTF-8 (byte {at}), which the tokenizer \"{tokenizer}\" needs; convert it, or \
         set data.tokenizer = \"bytes\""
    )]
    NotUtf8 { name: String, at: usize, tokenizer: &'static str },
    #[error("the dictionary inside this program is damaged ({0}); build it again")]
    BuiltIn(&'static str),
}

/// A text in memory.
#[derive(Debug, Clone)]
pub struct Corpus {
    /// For people to read.
    pub name: String,
    pub bytes: Vec<u8>,
    /// blake3 of `bytes`.
    pub hash: Hash,
}

impl Corpus {
    /// Read all of `source`.
    ///
    /// Of a folder: every file below it, hidden ones left out, sorted by path, with an empty line between them.
    pub fn load(source: &Source) -> Result<Self, CorpusError> {
        let bytes = match source {
            Source::Webster => inflate_webster()?,
            Source::Path(path) => {
                let mut bytes = Vec::new();
                visit(path, |part| bytes.extend_from_slice(part))?;
                bytes
            }
        };
        Ok(Self { name: source.to_string(), hash: blake3::hash(&bytes), bytes })
    }

    /// The text as UTF-8; `tokenizer` is who asks.
    pub fn text(&self, tokenizer: &'static str) -> Result<&str, CorpusError> {
        std::str::from_utf8(&self.bytes).map_err(|e| CorpusError::NotUtf8 {
            name: self.name.clone(),
            at: e.valid_up_to(),
            tokenizer,
        })
    }
}

/// blake3 of the bytes that [`Corpus::load`] would give, without holding them.
pub fn fingerprint(source: &Source) -> Result<Hash, CorpusError> {
    match source {
        Source::Webster => Ok(Hash::from_bytes(webster::HASH)),
        Source::Path(path) => {
            let mut hasher = Hasher::new();
            visit(path, |part| {
                hasher.update(part);
            })?;
            Ok(hasher.finalize())
        }
    }
}

fn inflate_webster() -> Result<Vec<u8>, CorpusError> {
    let mut bytes = Vec::with_capacity(webster::LENGTH);
    ZlibDecoder::new(webster::COMPRESSED)
        .read_to_end(&mut bytes)
        .map_err(|_| CorpusError::BuiltIn("it does not decompress"))?;
    if blake3::hash(&bytes) != Hash::from_bytes(webster::HASH) {
        return Err(CorpusError::BuiltIn("it does not match its hash"));
    }
    Ok(bytes)
}

/// Show all of a file's or folder's text to `see`, piece by piece.
fn visit(path: &Path, mut see: impl FnMut(&[u8])) -> Result<(), CorpusError> {
    let mut files = Vec::new();
    match std::fs::metadata(path) {
        Ok(meta) if meta.is_dir() => list(path, &mut files)?,
        Ok(_) => files.push(path.to_path_buf()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            return Err(CorpusError::Missing { path: path.into() });
        }
        Err(error) => return Err(unreadable(path, error)),
    }
    files.sort();
    let mut buffer = vec![0; 1 << 16];
    let mut empty = true;
    for (i, file) in files.iter().enumerate() {
        if i > 0 {
            see(SEPARATOR);
        }
        let mut open = File::open(file).map_err(|e| unreadable(file, e))?;
        loop {
            match open.read(&mut buffer) {
                Ok(0) => break,
                Ok(n) => {
                    empty = false;
                    see(&buffer[..n]);
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(unreadable(file, e)),
            }
        }
    }
    if empty { Err(CorpusError::Empty { path: path.into() }) } else { Ok(()) }
}

/// Collect the files below a folder. Linked folders are not entered, as they may lead in a circle.
fn list(folder: &Path, files: &mut Vec<PathBuf>) -> Result<(), CorpusError> {
    for entry in std::fs::read_dir(folder).map_err(|e| unreadable(folder, e))? {
        let entry = entry.map_err(|e| unreadable(folder, e))?;
        let path = entry.path();
        if entry.file_name().as_encoded_bytes().starts_with(b".") {
            continue;
        }
        let kind = entry.file_type().map_err(|e| unreadable(&path, e))?;
        if kind.is_dir() {
            list(&path, files)?;
        } else if std::fs::metadata(&path).map_err(|e| unreadable(&path, e))?.is_file() {
            files.push(path);
        }
    }
    Ok(())
}

fn unreadable(path: &Path, error: io::Error) -> CorpusError {
    CorpusError::Unreadable { path: path.into(), error }
}
