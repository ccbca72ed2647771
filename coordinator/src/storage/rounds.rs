//! Manifests of rounds on disk. A manifest is written after all blobs that it names: it makes the round count.

use std::{collections::HashSet, io, path::Path};

use protocol::blob::{BlobHash, BlobRef};

use super::{
    blob_store::BlobStore,
    manifests::{self, ManifestFile, file},
    remove,
};
use control::block::RoundManifest;

impl ManifestFile for RoundManifest {
    const COUNTS: &'static str = "round";

    fn number(&self) -> u64 {
        self.published.round
    }

    fn needed(&self) -> Vec<BlobRef> {
        self.published.blobs().collect()
    }
}

/// Writes a manifest.
///
/// # Errors
/// The disk's.
pub(crate) fn write(folder: &Path, manifest: &RoundManifest) -> io::Result<()> {
    manifests::write(folder, manifest)
}

/// All manifests that can be read, oldest first.
///
/// # Errors
/// A folder that cannot be read.
pub(crate) fn list(folder: &Path) -> io::Result<Vec<RoundManifest>> {
    manifests::list(folder)
}

/// The newest manifest whose blobs are all whole.
///
/// # Errors
/// A folder that cannot be read; manifests of which not one is whole.
pub(crate) async fn newest_good(folder: &Path, blobs: &BlobStore) -> anyhow::Result<Option<RoundManifest>> {
    manifests::newest_good(folder, blobs).await
}

/// Forgets all but the newest `keep` manifests; gives the blobs that only forgotten ones name, and those that are still
/// named.
pub(crate) fn prune(folder: &Path, keep: usize) -> io::Result<(Vec<BlobHash>, HashSet<BlobHash>)> {
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
        remove(&file::<RoundManifest>(folder, manifest.published.round))?;
    }
    Ok((named(old).difference(&wanted).copied().collect(), wanted))
}
