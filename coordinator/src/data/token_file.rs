//! Token ids on disk: written once, mapped into memory, checked before use.
//!
//! Layout, all little-endian:
//!
//! ```text
//!   0  8 bytes  "COHORTOK"
//!   8  u32      version
//!  12  u32      bytes per id: 2 if the vocabulary has at most 65,536 entries, else 4
//!  16  u32      V, size of the vocabulary; every id is below it
//!  20  u32      0
//!  24  u64      number of ids
//!  32  u64      ids of the training split; the rest is held out
//!  40  32 bytes blake3 of the tokenizer
//!  72  32 bytes blake3 of the source text
//! 104  32 bytes blake3 of the ids below
//! 136  32 bytes blake3 of bytes 0..136
//! 168           the ids
//! ```

use std::{
    io::{self, BufWriter, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

use blake3::{Hash, Hasher};
use memmap2::Mmap;
use tempfile::NamedTempFile;

const MAGIC: &[u8; 8] = b"COHORTOK";
const VERSION: u32 = 1;
const HEADER: usize = 168;

/// Why a token file cannot be used or made.
#[derive(Debug, thiserror::Error)]
pub enum TokenFileError {
    #[error("cannot {what} the token file {path}: {error}; check that --data-dir is writable and has space", path = path.display())]
    /// The disk refused.
    Io {
        /// What could not be done.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    #[error("the token file {path} is damaged ({what}); delete it and it will be made again", path = path.display())]
    /// A file is not a whole token file.
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: &'static str,
    },
    #[error("the token file {path} belongs to another {what}; delete it and it will be made again", path = path.display())]
    /// A file is of another text or tokenizer.
    Stale {
        /// The file.
        path: PathBuf,
        /// What has changed.
        what: &'static str,
    },
    #[error("id {id} is not below the vocabulary of {vocabulary}: the tokenizer and its vocabulary disagree")]
    /// A tokenizer gave an id outside its vocabulary.
    IdTooLarge {
        /// The id.
        id: u32,
        /// V.
        vocabulary: u32,
    },
}

/// What a token file was made from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TokenKey {
    /// Of the tokenizer.
    pub tokenizer: Hash,
    /// Of the text.
    pub source: Hash,
    /// Share of the ids that is held out, at the end; from 0 to below 1.
    pub validation_fraction: f64,
}

impl TokenKey {
    /// A name of its own for each key, so that runs with other data can share a folder.
    pub fn file_name(&self) -> String {
        let mut hasher = Hasher::new();
        hasher.update(self.tokenizer.as_bytes());
        hasher.update(self.source.as_bytes());
        hasher.update(&self.validation_fraction.to_le_bytes());
        format!("{}.tokens", &hasher.finalize().to_hex()[..16])
    }

    /// Ids of the training split out of `count`.
    fn train_tokens(&self, count: u64) -> u64 {
        count - ((count as f64 * self.validation_fraction).round() as u64).min(count)
    }
}

/// Ids of a corpus, mapped into memory.
#[derive(Debug)]
pub struct TokenFile {
    map: Mmap,
    width: usize,
    vocabulary: u32,
    count: u64,
    train_tokens: u64,
}

impl TokenFile {
    /// Map and check the file at `path`; it is read once to verify its hash.
    ///
    /// # Errors
    /// A file that is missing, damaged, or of another text, tokenizer or split.
    pub fn open(path: &Path, key: &TokenKey) -> Result<Self, TokenFileError> {
        let io = |error| TokenFileError::Io { what: "read", path: path.into(), error };
        let damaged = |what| TokenFileError::Damaged { path: path.into(), what };
        let stale = |what| TokenFileError::Stale { path: path.into(), what };
        let file = std::fs::File::open(path).map_err(io)?;
        // SAFETY: a mapped file must not change. We only ever replace token files by renaming, which leaves
        // the mapped one as it is, and nobody else has business in the data folder.
        let map = unsafe { Mmap::map(&file) }.map_err(io)?;
        let header = Header::parse(&map).map_err(damaged)?;
        if header.tokenizer != key.tokenizer {
            return Err(stale("tokenizer"));
        }
        if header.source != key.source {
            return Err(stale("source"));
        }
        if header.train_tokens != key.train_tokens(header.count) {
            return Err(stale("validation_fraction"));
        }
        let ids = &map[HEADER..];
        if Some(ids.len() as u64) != header.count.checked_mul(u64::from(header.width)) {
            return Err(damaged("its length is not what the header says"));
        }
        if blake3::hash(ids) != header.ids {
            return Err(damaged("its ids do not match their hash"));
        }
        Ok(Self {
            width: header.width as usize,
            vocabulary: header.vocabulary,
            count: header.count,
            train_tokens: header.train_tokens,
            map,
        })
    }

    /// Number of ids in both splits.
    pub fn len(&self) -> u64 {
        self.count
    }

    /// Whether there is not one token.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Ids of the training split: `0..train_tokens()`. The others are held out.
    pub fn train_tokens(&self) -> u64 {
        self.train_tokens
    }

    /// V; every id is below it.
    pub fn vocabulary(&self) -> u32 {
        self.vocabulary
    }

    /// Append `count` ids from `start` on to `out`; fewer where the file ends.
    pub fn read(&self, start: u64, count: usize, out: &mut Vec<u32>) {
        let start = start.min(self.count) as usize;
        let end = start.saturating_add(count).min(self.count as usize);
        let bytes = &self.map[HEADER + start * self.width..HEADER + end * self.width];
        if self.width == 2 {
            out.extend(bytes.as_chunks().0.iter().map(|b| u32::from(u16::from_le_bytes(*b))));
        } else {
            out.extend(bytes.as_chunks().0.iter().map(|b| u32::from_le_bytes(*b)));
        }
    }
}

/// Makes a token file under a temporary name; it gets its own in [`TokenWriter::finish`], complete or not at all.
#[derive(Debug)]
pub struct TokenWriter {
    path: PathBuf,
    key: TokenKey,
    vocabulary: u32,
    width: u32,
    count: u64,
    hasher: Hasher,
    file: BufWriter<NamedTempFile>,
}

impl TokenWriter {
    /// Begin the file that will lie at `path`; folders above it are made.
    ///
    /// # Errors
    /// What the disk says.
    pub fn create(path: &Path, key: &TokenKey, vocabulary: u32) -> Result<Self, TokenFileError> {
        let io = |error| TokenFileError::Io { what: "create", path: path.into(), error };
        let folder = path.parent().unwrap_or(Path::new("."));
        std::fs::create_dir_all(folder).map_err(io)?;
        let mut file = BufWriter::new(NamedTempFile::new_in(folder).map_err(io)?);
        file.write_all(&[0; HEADER]).map_err(io)?;
        Ok(Self {
            path: path.into(),
            key: *key,
            vocabulary,
            width: if vocabulary <= 1 << 16 { 2 } else { 4 },
            count: 0,
            hasher: Hasher::new(),
            file,
        })
    }

    /// Append ids.
    ///
    /// # Errors
    /// An id beyond the vocabulary; what the disk says.
    pub fn push(&mut self, ids: &[u32]) -> Result<(), TokenFileError> {
        if let Some(id) = ids.iter().find(|id| **id >= self.vocabulary) {
            return Err(TokenFileError::IdTooLarge { id: *id, vocabulary: self.vocabulary });
        }
        let bytes: Vec<u8> = if self.width == 2 {
            ids.iter().flat_map(|id| (*id as u16).to_le_bytes()).collect()
        } else {
            ids.iter().flat_map(|id| id.to_le_bytes()).collect()
        };
        self.hasher.update(&bytes);
        self.count += ids.len() as u64;
        self.file.write_all(&bytes).map_err(|error| self.io(error))
    }

    /// Fill in the header, give the file its name and open it.
    ///
    /// # Errors
    /// What the disk says.
    pub fn finish(mut self) -> Result<TokenFile, TokenFileError> {
        let header = Header {
            width: self.width,
            vocabulary: self.vocabulary,
            count: self.count,
            train_tokens: self.key.train_tokens(self.count),
            tokenizer: self.key.tokenizer,
            source: self.key.source,
            ids: self.hasher.finalize(),
        };
        self.write_header(&header).map_err(|error| self.io(error))?;
        let Self { path, key, file, .. } = self;
        let io = |error| TokenFileError::Io { what: "write", path: path.clone(), error };
        let file = file.into_inner().map_err(|e| io(e.into_error()))?;
        file.persist(&path).map_err(|e| io(e.error))?;
        TokenFile::open(&path, &key)
    }

    fn write_header(&mut self, header: &Header) -> io::Result<()> {
        self.file.seek(SeekFrom::Start(0))?;
        self.file.write_all(&header.bytes())?;
        self.file.flush()?;
        // On disk before it is named: after a crash the name never stands for half a file.
        self.file.get_ref().as_file().sync_all()
    }

    fn io(&self, error: io::Error) -> TokenFileError {
        TokenFileError::Io { what: "write", path: self.path.clone(), error }
    }
}

struct Header {
    width: u32,
    vocabulary: u32,
    count: u64,
    train_tokens: u64,
    tokenizer: Hash,
    source: Hash,
    /// Hash of the ids as bytes.
    ids: Hash,
}

impl Header {
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER);
        bytes.extend_from_slice(MAGIC);
        for word in [VERSION, self.width, self.vocabulary, 0] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        for word in [self.count, self.train_tokens] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        for hash in [self.tokenizer, self.source, self.ids] {
            bytes.extend_from_slice(hash.as_bytes());
        }
        let own = blake3::hash(&bytes);
        bytes.extend_from_slice(own.as_bytes());
        bytes
    }

    /// The error is what is wrong, for [`TokenFileError::Damaged`].
    fn parse(file: &[u8]) -> Result<Self, &'static str> {
        let bytes = file.first_chunk::<HEADER>().ok_or("it is shorter than its header")?;
        if &field::<8>(bytes, 0) != MAGIC {
            return Err("it does not begin like a token file");
        }
        if u32::from_le_bytes(field(bytes, 8)) != VERSION {
            return Err("it has another version");
        }
        if blake3::hash(&bytes[..HEADER - 32]) != Hash::from_bytes(field(bytes, HEADER - 32)) {
            return Err("its header does not match its hash");
        }
        let width = u32::from_le_bytes(field(bytes, 12));
        if width != 2 && width != 4 {
            return Err("its ids have an unknown width");
        }
        Ok(Self {
            width,
            vocabulary: u32::from_le_bytes(field(bytes, 16)),
            count: u64::from_le_bytes(field(bytes, 24)),
            train_tokens: u64::from_le_bytes(field(bytes, 32)),
            tokenizer: Hash::from_bytes(field(bytes, 40)),
            source: Hash::from_bytes(field(bytes, 72)),
            ids: Hash::from_bytes(field(bytes, 104)),
        })
    }
}

fn field<const N: usize>(bytes: &[u8; HEADER], at: usize) -> [u8; N] {
    std::array::from_fn(|i| bytes[at + i])
}
