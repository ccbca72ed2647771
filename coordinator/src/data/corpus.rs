//! Where text comes from: a file, a folder, or the dictionary inside the binary. It is read in pieces, never held whole.

use std::{
    fmt,
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
};

use super::utf8_stream::{NotUtf8, Utf8Stream};

use blake3::{Hash, Hasher};
use flate2::read::ZlibDecoder;

use crate::run_folder;

mod webster {
    include!(concat!(env!("OUT_DIR"), "/webster.rs"));
}

/// Stands between the files of a folder.
const SEPARATOR: &[u8] = b"\n\n";
/// Bytes of a piece.
const PIECE: usize = 1 << 16;
/// How a text in UTF-8 may begin. It marks the encoding and is no part of the text.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

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
    /// Nothing lies at the path.
    #[error("data.source: there is no file or folder {path}; give the path of a text, or \"webster\"", path = path.display())]
    Missing {
        /// The path.
        path: PathBuf,
    },
    /// No file has a byte.
    #[error("data.source: {path} has no text in it; give a file or folder with some", path = path.display())]
    Empty {
        /// The file or folder.
        path: PathBuf,
    },
    /// The folder of texts is the one that the run writes to.
    #[error("data.source: {path} is the folder of the run itself; put the texts into another folder, or name another with --data-dir", path = path.display())]
    OwnFolder {
        /// The folder.
        path: PathBuf,
    },
    /// The system says no.
    #[error("data.source: cannot read {path}: {error}; make it readable for this user", path = path.display())]
    Unreadable {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// A file begins with the byte order mark of UTF-16.
    #[error("data.source: {path} is UTF-16, as some editors and PowerShell write; save it as UTF-8", path = path.display())]
    Utf16 {
        /// The file.
        path: PathBuf,
    },
    /// A file has bytes that are no text.
    #[error(
        "data.source: {path} is not UTF-8 (byte {at}), which the tokenizer \"{tokenizer}\" needs; convert it, or \
         set data.tokenizer = \"bytes\"", path = path.display()
    )]
    NotUtf8 {
        /// The file.
        path: PathBuf,
        /// Offset in the file of the first byte that is none.
        at: u64,
        /// Who needs text.
        tokenizer: &'static str,
    },
    /// Between two readings of the text.
    #[error("data.source: {name} changed while it was read; begin again once nobody writes to it")]
    Changed {
        /// The corpus, for people.
        name: String,
    },
    /// The text that came with the program.
    #[error("the dictionary inside this program is damaged ({0}); build it again")]
    BuiltIn(&'static str),
}

/// A text, to be read in pieces as often as needed.
///
/// Of a folder: every file below it, sorted by path, with an empty line between them. Hidden and empty files and the
/// folders of runs are left out. A byte order mark of UTF-8 at the beginning of a file is no part of the text; nothing
/// else is changed.
#[derive(Debug, Clone)]
pub struct Corpus {
    /// For people to read.
    pub name: String,
    /// None: the dictionary.
    files: Option<Vec<PathBuf>>,
    /// Bytes in all files, byte order marks included.
    size: u64,
}

impl Corpus {
    /// Looks for the files of `source`. `own` is the folder of the run, which is never read.
    ///
    /// # Errors
    /// A source that is missing, empty, unreadable or in UTF-16.
    pub fn open(source: &Source, own: Option<&Path>) -> Result<Self, CorpusError> {
        let name = source.to_string();
        let Source::Path(path) = source else {
            return Ok(Self { name, files: None, size: webster::LENGTH as u64 });
        };
        let mut found = Vec::new();
        match std::fs::metadata(path) {
            Ok(meta) if meta.is_dir() => {
                let own = own.and_then(|own| own.canonicalize().ok());
                if own.is_some() && path.canonicalize().ok() == own {
                    return Err(CorpusError::OwnFolder { path: path.into() });
                }
                list(path, own.as_deref(), &mut found)?;
            }
            Ok(_) => found.push(path.clone()),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                return Err(CorpusError::Missing { path: path.into() });
            }
            Err(error) => return Err(unreadable(path, error)),
        }
        found.sort();
        let (mut files, mut size) = (Vec::new(), 0);
        for file in found {
            let bytes = std::fs::metadata(&file).map_err(|e| unreadable(&file, e))?.len();
            let begin = beginning(&file)?;
            if begin.starts_with(b"\xff\xfe") || begin.starts_with(b"\xfe\xff") {
                return Err(CorpusError::Utf16 { path: file });
            }
            if !begin.is_empty() && begin != BYTE_ORDER_MARK {
                files.push(file);
                size += bytes;
            }
        }
        if files.is_empty() {
            return Err(CorpusError::Empty { path: path.into() });
        }
        Ok(Self { name, files: Some(files), size })
    }

    /// Bytes on disk: about how much there is to read.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Shows all of the text to `see`, piece by piece.
    ///
    /// # Errors
    /// What a file has, or what `see` says.
    pub fn read<E: From<CorpusError>>(&self, mut see: impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        self.visit(|part| match part {
            Part::Piece { bytes, .. } => see(bytes),
            Part::End => Ok(()),
        })
    }

    /// Shows all of the text to `see` as UTF-8, piece by piece; `tokenizer` is who asks.
    ///
    /// # Errors
    /// As for [`Corpus::read`], and the first file that is not UTF-8.
    pub fn read_text<E: From<CorpusError>>(
        &self,
        tokenizer: &'static str,
        mut see: impl FnMut(&str) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut stream = Utf8Stream::default();
        let mut current: Option<(&Path, u64)> = None;
        self.visit(|part| {
            let not_utf8 = |file: Option<(&Path, u64)>, NotUtf8 { at }| {
                let (path, begin) = file.unwrap_or((Path::new("webster"), 0));
                CorpusError::NotUtf8 { path: path.into(), at: begin + at, tokenizer }
            };
            match part {
                Part::Piece { bytes, file } => {
                    current = file.or(current);
                    let (mended, text) = stream.push(bytes).map_err(|e| not_utf8(current, e))?;
                    if let Some(character) = mended {
                        see(character.encode_utf8(&mut [0; 4]))?;
                    }
                    see(text)
                }
                Part::End => {
                    stream.end().map_err(|e| not_utf8(current, e))?;
                    Ok(())
                }
            }
        })
    }

    /// blake3 of the text.
    ///
    /// # Errors
    /// As for [`Corpus::read`].
    pub fn fingerprint(&self) -> Result<Hash, CorpusError> {
        let mut hasher = Hasher::new();
        self.read(|bytes| -> Result<(), CorpusError> {
            hasher.update(bytes);
            Ok(())
        })?;
        let hash = hasher.finalize();
        if self.files.is_none() && hash != Hash::from_bytes(webster::HASH) {
            return Err(CorpusError::BuiltIn("it does not match its hash"));
        }
        Ok(hash)
    }

    /// All pieces and, after each file and separator, its end.
    fn visit<'a, E: From<CorpusError>>(
        &'a self,
        mut see: impl FnMut(Part<'_, 'a>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut buffer = vec![0; PIECE];
        let Some(files) = &self.files else {
            let damaged = |_| CorpusError::BuiltIn("it does not decompress");
            return pieces(&mut ZlibDecoder::new(webster::COMPRESSED), &mut buffer, damaged, |bytes| {
                see(Part::Piece { bytes, file: None })
            });
        };
        for (i, file) in files.iter().enumerate() {
            if i > 0 {
                see(Part::Piece { bytes: SEPARATOR, file: None })?;
                see(Part::End)?;
            }
            let mut open = File::open(file).map_err(|e| unreadable(file, e))?;
            let mut begin = Vec::new();
            (&mut open)
                .take(BYTE_ORDER_MARK.len() as u64)
                .read_to_end(&mut begin)
                .map_err(|e| unreadable(file, e))?;
            let mark = begin == BYTE_ORDER_MARK;
            let skipped = if mark { begin.len() as u64 } else { 0 };
            let begin = if mark { &[] } else { begin.as_slice() };
            pieces(
                &mut begin.chain(open),
                &mut buffer,
                |e| unreadable(file, e),
                |bytes| see(Part::Piece { bytes, file: Some((file, skipped)) }),
            )?;
            see(Part::End)?;
        }
        Ok(())
    }
}

/// What [`Corpus::visit`] shows.
enum Part<'a, 'c> {
    /// Bytes of a file, with its path and what was skipped at its beginning; None: of a separator or the dictionary.
    Piece { bytes: &'a [u8], file: Option<(&'c Path, u64)> },
    /// The end of a file, where no character may be half.
    End,
}

/// Shows all that can be read, as far as the buffer reaches at a time.
fn pieces<E: From<CorpusError>>(
    from: &mut impl Read,
    buffer: &mut [u8],
    failed: impl Fn(io::Error) -> CorpusError,
    mut see: impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    loop {
        match from.read(buffer) {
            Ok(0) => return Ok(()),
            Ok(n) => see(&buffer[..n])?,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(failed(e).into()),
        }
    }
}

/// The first bytes of a file, as many as a byte order mark has and one more.
fn beginning(file: &Path) -> Result<Vec<u8>, CorpusError> {
    let mut bytes = Vec::new();
    let open = File::open(file).map_err(|e| unreadable(file, e))?;
    open.take(BYTE_ORDER_MARK.len() as u64 + 1).read_to_end(&mut bytes).map_err(|e| unreadable(file, e))?;
    Ok(bytes)
}

/// Collects the files below a folder, without those of runs. Linked folders are not entered, as they may lead in a circle.
fn list(folder: &Path, own: Option<&Path>, files: &mut Vec<PathBuf>) -> Result<(), CorpusError> {
    for entry in std::fs::read_dir(folder).map_err(|e| unreadable(folder, e))? {
        let entry = entry.map_err(|e| unreadable(folder, e))?;
        let path = entry.path();
        if entry.file_name().as_encoded_bytes().starts_with(b".") {
            continue;
        }
        let kind = entry.file_type().map_err(|e| unreadable(&path, e))?;
        if kind.is_dir() {
            if !run_folder::is_of_a_run(&path)
                && (own.is_none() || path.canonicalize().ok().as_deref() != own)
            {
                list(&path, own, files)?;
            }
        } else if std::fs::metadata(&path).map_err(|e| unreadable(&path, e))?.is_file() {
            files.push(path);
        }
    }
    Ok(())
}

fn unreadable(path: &Path, error: io::Error) -> CorpusError {
    CorpusError::Unreadable { path: path.into(), error }
}
