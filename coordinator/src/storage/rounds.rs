//! Manifests of rounds on disk. A manifest is written after all blobs that it names: it makes the round count.

use std::{
    collections::HashSet,
    fs, io,
    path::{Path, PathBuf},
};

use protocol::blob::BlobHash;

use super::blob_store::BlobStore;
use super::{remove, write_atomically};
use control::block::RoundManifest;

fn file(folder: &Path, round: u64) -> PathBuf {
    folder.join(format!("round-{round:08}.json"))
}

/// Write a manifest.
pub fn write(folder: &Path, manifest: &RoundManifest) -> io::Result<()> {
    write_atomically(&file(folder, manifest.published.round), &serde_json::to_vec_pretty(manifest)?)
}

/// All manifests that can be read, oldest first. A damaged one does not count.
pub fn list(folder: &Path) -> io::Result<Vec<RoundManifest>> {
    let mut manifests: Vec<RoundManifest> = fs::read_dir(folder)?
        .filter_map(|entry| serde_json::from_slice(&fs::read(entry.ok()?.path()).ok()?).ok())
        .collect();
    manifests.sort_by_key(|manifest: &RoundManifest| manifest.published.round);
    Ok(manifests)
}

/// The newest manifest whose blobs are all whole. What is newer and damaged is said aloud.
///
/// # Errors
/// A folder that cannot be read; manifests of which not one is whole.
pub async fn newest_good(folder: &Path, blobs: &BlobStore) -> anyhow::Result<Option<RoundManifest>> {
    let manifests = list(folder)?;
    let there_are_some = !manifests.is_empty();
    for manifest in manifests.into_iter().rev() {
        let mut damaged = None;
        for blob in manifest.published.blobs().collect::<Vec<_>>() {
            if !blobs.is_whole(blob).await? {
                damaged = Some(blob.hash);
                break;
            }
        }
        match damaged {
            None => return Ok(Some(manifest)),
            Some(blob) => tracing::warn!(
                "the snapshot of round {} cannot be used: the blob {blob} is missing or damaged; going back to the one \
                 before",
                manifest.published.round
            ),
        }
    }
    anyhow::ensure!(
        !there_are_some,
        "every snapshot in {} has missing or damaged blobs; restore the folder `blobs` beside it, or begin anew in \
         another folder",
        folder.display()
    );
    Ok(None)
}

/// Forget all but the newest `keep` manifests; gives the blobs that only forgotten ones name, and those that are still
/// named.
pub fn prune(folder: &Path, keep: usize) -> io::Result<(Vec<BlobHash>, HashSet<BlobHash>)> {
    let manifests = list(folder)?;
    let (old, kept) = manifests.split_at(manifests.len().saturating_sub(keep.max(1)));
    let named = |manifests: &[RoundManifest]| -> HashSet<BlobHash> {
        let blobs = |m: &RoundManifest| {
            let work = m.work.iter().map(|work| work.delta.hash);
            m.published.blobs().map(|blob| blob.hash).chain(work).collect::<Vec<_>>()
        };
        manifests.iter().flat_map(blobs).collect()
    };
    let wanted = named(kept);
    for manifest in old {
        remove(&file(folder, manifest.published.round))?;
    }
    Ok((named(old).difference(&wanted).copied().collect(), wanted))
}
