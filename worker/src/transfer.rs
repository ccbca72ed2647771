//! Blobs in pieces, taken up again where they were cut off.

use protocol::blob::{BlobHash, BlobRef, CHUNK};

use super::host::{Blobs, HostError, Put};

/// Fetch a blob and check its hash.
pub async fn fetch(blobs: &impl Blobs, token: &str, blob: BlobRef) -> Result<Vec<u8>, HostError> {
    let mut bytes = Vec::new();
    while (bytes.len() as u64) < blob.bytes {
        let first = bytes.len() as u64;
        let piece = blobs.get(token, blob.hash, first..(first + CHUNK).min(blob.bytes)).await?;
        if piece.is_empty() {
            return Err(HostError("the coordinator's store sent an empty piece".into()));
        }
        bytes.extend_from_slice(&piece);
    }
    if BlobHash::of(&bytes) != blob.hash {
        return Err(HostError("downloaded weights do not match their hash".into()));
    }
    Ok(bytes)
}

/// Store a blob under its hash.
pub async fn store(blobs: &impl Blobs, token: &str, blob: BlobRef, bytes: &[u8]) -> Result<(), HostError> {
    let total = blob.bytes;
    let mut first = 0;
    // The store may send us back once for every piece, not for ever.
    let mut detours = total / CHUNK + 2;
    loop {
        let end = (first + CHUNK).min(total);
        match blobs.put(token, blob.hash, first, total, &bytes[first as usize..end as usize]).await? {
            Put::Whole => return Ok(()),
            Put::More if end < total => first = end,
            Put::GoOnAt(at) if at < total && detours > 0 => {
                detours -= 1;
                first = at;
            }
            answer => return Err(HostError(format!("the coordinator's store said {answer:?} out of turn"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::RefCell, ops::Range};

    use futures::executor::block_on;

    use super::*;

    /// Loses its connection after every other piece, and remembers what it has.
    #[derive(Default)]
    struct Forgetful {
        stored: RefCell<Vec<u8>>,
        puts: RefCell<u32>,
    }

    impl Blobs for Forgetful {
        async fn get(&self, _: &str, _: BlobHash, range: Range<u64>) -> Result<Vec<u8>, HostError> {
            Ok(self.stored.borrow()[range.start as usize..range.end as usize].to_vec())
        }

        async fn put(
            &self,
            _: &str,
            _: BlobHash,
            first: u64,
            total: u64,
            piece: &[u8],
        ) -> Result<Put, HostError> {
            *self.puts.borrow_mut() += 1;
            let mut stored = self.stored.borrow_mut();
            if first != stored.len() as u64 {
                return Ok(Put::GoOnAt(stored.len() as u64));
            }
            stored.extend_from_slice(piece);
            Ok(if stored.len() as u64 == total { Put::Whole } else { Put::More })
        }
    }

    #[test]
    fn a_blob_goes_over_in_pieces_and_an_upload_goes_on_where_it_was_cut_off() {
        let bytes: Vec<u8> = (0..2 * CHUNK + 5).map(|i| (i % 251) as u8).collect();
        let blob = BlobRef::of(&bytes);
        let store_with_a_start = Forgetful::default();
        store_with_a_start.stored.borrow_mut().extend_from_slice(&bytes[..CHUNK as usize]);
        block_on(store(&store_with_a_start, "", blob, &bytes)).unwrap();
        assert_eq!(*store_with_a_start.puts.borrow(), 3, "one in vain, then the two that were missing");
        assert_eq!(block_on(fetch(&store_with_a_start, "", blob)).unwrap(), bytes);

        store_with_a_start.stored.borrow_mut()[7] ^= 1;
        assert!(block_on(fetch(&store_with_a_start, "", blob)).is_err(), "a flipped bit is seen");
    }
}
