//! Blobs in pieces, each with a deadline, taken up again where they were cut off. A store that asks to wait is waited for.

use std::cell::Cell;

use protocol::blob::{BlobHash, BlobRef, CHUNK};

use crate::platform::{Blobs, Clock, Got, Later, PlatformError, Put, within};

/// Smallest piece that an upload is cut into. Proxies that take less do not take this program's frames either.
const SMALLEST_PIECE: u64 = 64 << 10;
/// Each smaller piece is this many times smaller.
const SHRINK: u64 = 4;
/// Requests made for one piece before the transfer is given up.
const TRIES: u32 = 3;
/// Pause before the second request for a piece, in seconds; each further one is twice as long.
const FIRST_PAUSE: f64 = 0.5;
/// Seconds that any request may take ...
const REQUEST_SECONDS: f64 = 30.0;
/// ... and one more for so many bytes of its piece: a slow phone's link.
const BYTES_PER_SECOND: f64 = 32.0 * 1024.0;

/// Why a blob could not be transferred.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub(crate) enum TransferError {
    #[error(transparent)]
    Platform(#[from] PlatformError),
    #[error("the coordinator's store did not answer within {seconds:.0} s")]
    Late { seconds: f64 },
    #[error("the coordinator's store sent {found} bytes where 1 to {wanted} were asked for")]
    Length { found: u64, wanted: u64 },
    #[error("the downloaded weights do not match their hash")]
    Hash,
    #[error("the coordinator's store answered out of turn: {0:?}")]
    OutOfTurn(Put),
    #[error(
        "uploads are refused as too large (HTTP 413) even in pieces of {} KiB: let the proxy before the coordinator take larger requests",
        bytes >> 10
    )]
    PieceTooLarge { bytes: u64 },
    #[error("the coordinator wants a file of {bytes} bytes fetched; this run's files have at most {limit}")]
    BlobTooLarge { bytes: u64, limit: u64 },
}

/// Largest piece that uploads are cut into. Once smaller ones had to be used, they are for the rest of the session.
#[derive(Debug)]
pub(crate) struct PieceSize(Cell<u64>);

impl Default for PieceSize {
    fn default() -> Self {
        Self(Cell::new(CHUNK))
    }
}

impl PieceSize {
    /// Takes a size below `bytes`, unless one is in use already. False when there is none.
    fn shrink_below(&self, bytes: u64) -> bool {
        while self.0.get() >= bytes && self.0.get() > SMALLEST_PIECE {
            self.0.set((self.0.get() / SHRINK).max(SMALLEST_PIECE));
        }
        self.0.get() < bytes
    }
}

/// Fetches a blob of at most `limit` bytes and checks its hash.
///
/// # Errors
/// [`TransferError`]; nothing of the blob is kept then.
pub(crate) async fn fetch(
    blobs: &impl Blobs,
    clock: &impl Clock,
    token: &str,
    blob: BlobRef,
    limit: u64,
) -> Result<Vec<u8>, TransferError> {
    if blob.bytes > limit {
        return Err(TransferError::BlobTooLarge { bytes: blob.bytes, limit });
    }
    let mut bytes = Vec::new();
    while (bytes.len() as u64) < blob.bytes {
        let first = bytes.len() as u64;
        let wanted = CHUNK.min(blob.bytes - first);
        let request = async || {
            Ok(match blobs.get(token, blob.hash, first..first + wanted).await? {
                Got::Bytes(bytes) => Ok(bytes),
                Got::Later(later) => Err(later),
            })
        };
        let piece = attempt(clock, wanted, request).await?;
        let found = piece.len() as u64;
        if found == 0 || found > wanted {
            return Err(TransferError::Length { found, wanted });
        }
        bytes.extend_from_slice(&piece);
    }
    if BlobHash::of(&bytes) != blob.hash {
        return Err(TransferError::Hash);
    }
    Ok(bytes)
}

/// Stores a blob under its hash. Pieces that are too large for the way, or too slow, are cut smaller.
///
/// # Errors
/// [`TransferError`]; the store keeps what it has.
pub(crate) async fn store(
    blobs: &impl Blobs,
    clock: &impl Clock,
    token: &str,
    blob: BlobRef,
    bytes: &[u8],
    size: &PieceSize,
) -> Result<(), TransferError> {
    let total = blob.bytes;
    let mut first = 0;
    // The store may send us back once for every piece, not for ever.
    let mut detours = total / SMALLEST_PIECE + 2;
    loop {
        let end = (first + size.0.get()).min(total);
        let length = end - first;
        let piece = &bytes[first as usize..end as usize];
        let request = async || {
            Ok(match blobs.put(token, blob.hash, first, total, piece).await? {
                Put::Later(later) => Err(later),
                answer => Ok(answer),
            })
        };
        match attempt(clock, length, request).await {
            Ok(Put::Whole) => return Ok(()),
            Ok(Put::More) if end < total => first = end,
            Ok(Put::GoOnAt(at)) if at < total && detours > 0 => {
                detours -= 1;
                first = at;
            }
            Ok(Put::TooLarge) if size.shrink_below(length) => {}
            Ok(Put::TooLarge) => return Err(TransferError::PieceTooLarge { bytes: length }),
            Ok(answer) => return Err(TransferError::OutOfTurn(answer)),
            Err(TransferError::Late { .. }) if size.shrink_below(length) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Makes a request for a piece of so many bytes: again when it fails, a few times; and after a while when the store asks
/// for that, for as long as it does. Meanwhile the session goes on, and a run whose disk is full holds until it is not.
///
/// # Errors
/// [`TransferError`] when it fails, or takes too long.
async fn attempt<T>(
    clock: &impl Clock,
    bytes: u64,
    request: impl AsyncFn() -> Result<Result<T, Later>, PlatformError>,
) -> Result<T, TransferError> {
    let seconds = REQUEST_SECONDS + bytes as f64 / BYTES_PER_SECOND;
    let mut pause = FIRST_PAUSE;
    let mut left = TRIES;
    loop {
        match within(clock, seconds, request()).await {
            Some(Ok(Ok(answer))) => return Ok(answer),
            Some(Ok(Err(later))) => clock.sleep(f64::from(later.seconds)).await,
            // The next piece can be smaller; the same one would be as slow.
            None => return Err(TransferError::Late { seconds }),
            Some(Err(error)) => {
                left -= 1;
                if left == 0 {
                    return Err(error.into());
                }
                clock.sleep(pause).await;
                pause *= 2.0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::RefCell, collections::VecDeque, ops::Range};

    use futures::executor::block_on;

    use super::*;

    /// Pauses take no time, and deadlines never come.
    struct NoTime;

    impl Clock for NoTime {
        fn now(&self) -> f64 {
            0.0
        }

        async fn sleep(&self, seconds: f64) {
            if seconds >= REQUEST_SECONDS {
                futures::future::pending::<()>().await;
            }
        }

        async fn yield_now(&self) {}
    }

    /// Keeps one blob, takes pieces up to a size, and answers as told before that.
    #[derive(Default)]
    struct Store {
        stored: RefCell<Vec<u8>>,
        largest: Cell<u64>,
        /// Lengths of the pieces that came.
        puts: RefCell<Vec<usize>>,
        /// What happens to the next requests; afterwards they work.
        script: RefCell<VecDeque<Result<(), ()>>>,
    }

    impl Store {
        fn of_pieces(largest: u64) -> Self {
            let store = Self::default();
            store.largest.set(largest);
            store
        }

        /// Fails, if the script says so.
        async fn scripted(&self) -> Result<(), PlatformError> {
            let next = self.script.borrow_mut().pop_front();
            match next {
                None | Some(Ok(())) => Ok(()),
                Some(Err(())) => Err(PlatformError("cut off".into())),
            }
        }
    }

    impl Blobs for Store {
        async fn get(&self, _: &str, _: BlobHash, range: Range<u64>) -> Result<Got, PlatformError> {
            self.scripted().await?;
            Ok(Got::Bytes(self.stored.borrow()[range.start as usize..range.end as usize].to_vec()))
        }

        async fn put(
            &self,
            _: &str,
            _: BlobHash,
            first: u64,
            total: u64,
            piece: &[u8],
        ) -> Result<Put, PlatformError> {
            self.scripted().await?;
            self.puts.borrow_mut().push(piece.len());
            if piece.len() as u64 > self.largest.get() {
                return Ok(Put::TooLarge);
            }
            let mut stored = self.stored.borrow_mut();
            if first != stored.len() as u64 {
                return Ok(Put::GoOnAt(stored.len() as u64));
            }
            stored.extend_from_slice(piece);
            Ok(if stored.len() as u64 == total { Put::Whole } else { Put::More })
        }
    }

    fn bytes(length: u64) -> Vec<u8> {
        (0..length).map(|i| (i % 251) as u8).collect()
    }

    #[test]
    fn a_blob_goes_over_in_pieces_and_an_upload_goes_on_where_it_was_cut_off() {
        let bytes = bytes(2 * CHUNK + 5);
        let blob = BlobRef::of(&bytes);
        let blobs = Store::of_pieces(CHUNK);
        blobs.stored.borrow_mut().extend_from_slice(&bytes[..CHUNK as usize]);
        block_on(store(&blobs, &NoTime, "", blob, &bytes, &PieceSize::default())).unwrap();
        assert_eq!(blobs.puts.borrow().len(), 3, "one in vain, then the two that were missing");
        assert_eq!(block_on(fetch(&blobs, &NoTime, "", blob, u64::MAX)).unwrap(), bytes);

        blobs.stored.borrow_mut()[7] ^= 1;
        assert_eq!(block_on(fetch(&blobs, &NoTime, "", blob, u64::MAX)), Err(TransferError::Hash));
        let limit = blob.bytes - 1;
        let refused = TransferError::BlobTooLarge { bytes: blob.bytes, limit };
        assert_eq!(block_on(fetch(&blobs, &NoTime, "", blob, limit)), Err(refused));
    }

    #[test]
    fn pieces_shrink_until_they_pass_and_stay_small() {
        let bytes = bytes(600 << 10);
        let blob = BlobRef::of(&bytes);
        let size = PieceSize::default();
        let blobs = Store::of_pieces(256 << 10);
        block_on(store(&blobs, &NoTime, "", blob, &bytes, &size)).unwrap();
        let kib = |blobs: &Store| blobs.puts.borrow().iter().map(|bytes| bytes >> 10).collect::<Vec<_>>();
        assert_eq!(kib(&blobs), [600, 256, 256, 88]);
        let again = Store::of_pieces(256 << 10);
        block_on(store(&again, &NoTime, "", blob, &bytes, &size)).unwrap();
        assert_eq!(kib(&again), [256, 256, 88], "the size is remembered");

        let narrow = Store::of_pieces(1000);
        let refused = block_on(store(&narrow, &NoTime, "", blob, &bytes, &size));
        assert_eq!(refused, Err(TransferError::PieceTooLarge { bytes: 64 << 10 }));
        assert_eq!(kib(&narrow), [256, 64]);
    }

    #[test]
    fn a_request_that_fails_is_made_again_a_few_times() {
        let bytes = bytes(10);
        let blob = BlobRef::of(&bytes);
        let blobs = Store::of_pieces(CHUNK);
        blobs.script.borrow_mut().extend([Err(()), Err(())]);
        block_on(store(&blobs, &NoTime, "", blob, &bytes, &PieceSize::default())).unwrap();
        blobs.script.borrow_mut().extend([Err(()), Err(()), Err(())]);
        let cut = TransferError::Platform(PlatformError("cut off".into()));
        assert_eq!(block_on(fetch(&blobs, &NoTime, "", blob, u64::MAX)), Err(cut));
    }
}
