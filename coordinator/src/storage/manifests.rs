//! What manifests of snapshots and of rounds have in common: files named by a number, written after all blobs that they
//! name, which make those blobs count.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use protocol::blob::BlobRef;
use serde::{Serialize, de::DeserializeOwned};

use super::{blob_store::BlobStore, write_atomically};

/// A manifest on disk.
pub(super) trait ManifestFile: Serialize + DeserializeOwned {
    /// What the number counts, as in "the snapshot of step 7"; begins the file's name.
    const COUNTS: &'static str;

    /// By which manifests are ordered.
    fn number(&self) -> u64;

    /// Blobs without which a run cannot go on from here.
    fn needed(&self) -> Vec<BlobRef>;
}

/// Where the manifest of this number lies.
pub(super) fn file<M: ManifestFile>(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("{}-{number:08}.json", M::COUNTS))
}

/// Writes a manifest.
pub(super) fn write<M: ManifestFile>(folder: &Path, manifest: &M) -> io::Result<()> {
    write_atomically(&file::<M>(folder, manifest.number()), &serde_json::to_vec_pretty(manifest)?)
}

/// All manifests that can be read, oldest first. A damaged one does not count.
pub(super) fn list<M: ManifestFile>(folder: &Path) -> io::Result<Vec<M>> {
    Ok(read_all(folder)?.0)
}

/// All manifests, oldest first, and what is wrong with those that cannot be read.
fn read_all<M: ManifestFile>(folder: &Path) -> io::Result<(Vec<M>, Vec<String>)> {
    let (mut manifests, mut faults) = (Vec::new(), Vec::new());
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        match fs::read(&path).map_err(serde_json::Error::io).and_then(|bytes| serde_json::from_slice(&bytes))
        {
            Ok(manifest) => manifests.push(manifest),
            Err(error) => faults.push(format!("{}: {error}", path.display())),
        }
    }
    manifests.sort_by_key(M::number);
    Ok((manifests, faults))
}

/// The newest manifest whose blobs are all whole. What is newer and damaged is said aloud, and damaged blobs are removed
/// so that they can be stored again.
///
/// # Errors
/// A folder that cannot be read; manifests of which not one is whole.
pub(super) async fn newest_good<M: ManifestFile>(
    folder: &Path,
    blobs: &BlobStore,
) -> anyhow::Result<Option<M>> {
    let (manifests, faults) = read_all::<M>(folder)?;
    let there_are_some = !manifests.is_empty() || !faults.is_empty();
    for fault in faults {
        tracing::warn!("a snapshot's manifest is damaged and does not count: {fault}");
    }
    for manifest in manifests.into_iter().rev() {
        let mut damaged = None;
        for blob in manifest.needed() {
            if !blobs.is_whole(blob).await? {
                blobs.delete(blob.hash).await?;
                damaged = Some(blob.hash);
                break;
            }
        }
        let Some(blob) = damaged else { return Ok(Some(manifest)) };
        tracing::warn!(
            "the snapshot of {} {} cannot be used: the blob {blob} is missing or damaged; going back to the one before",
            M::COUNTS,
            manifest.number()
        );
    }
    anyhow::ensure!(
        !there_are_some,
        "every snapshot in {} is damaged or has missing or damaged blobs; restore the folder `blobs` beside it, or begin \
         anew in another folder",
        folder.display()
    );
    Ok(None)
}
