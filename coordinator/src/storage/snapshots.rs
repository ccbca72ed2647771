//! Manifests of snapshots on disk. A manifest is written after all its parts: it makes the snapshot count.

use std::{collections::HashSet, io, path::Path};

use protocol::blob::{BlobHash, BlobRef};

use super::{
    blob_store::BlobStore,
    manifests::{self, ManifestFile, file},
    remove,
};
use control::pipeline::Manifest;

impl ManifestFile for Manifest {
    const COUNTS: &'static str = "step";

    fn number(&self) -> u64 {
        self.steps_done
    }

    fn needed(&self) -> Vec<BlobRef> {
        self.parts.iter().map(|part| part.blob).collect()
    }
}

/// Writes a manifest.
///
/// # Errors
/// The disk's.
pub(crate) fn write(folder: &Path, manifest: &Manifest) -> io::Result<()> {
    manifests::write(folder, manifest)
}

/// All manifests that can be read, oldest first.
///
/// # Errors
/// A folder that cannot be read.
pub(crate) fn list(folder: &Path) -> io::Result<Vec<Manifest>> {
    manifests::list(folder)
}

/// The newest manifest whose blobs are all whole.
///
/// # Errors
/// A folder that cannot be read; manifests of which not one is whole.
pub(crate) async fn newest_good(folder: &Path, blobs: &BlobStore) -> anyhow::Result<Option<Manifest>> {
    manifests::newest_good(folder, blobs).await
}

/// Forgets what is older than the newest `keep` manifests up to `accepted`, the one a run would go back to; gives
/// the blobs that only forgotten ones name, and those that are still named.
///
/// Later manifests are of work that was rolled back and is being done again. They stay, and they push nothing out:
/// workers may be loading the accepted one just now.
pub(crate) fn prune(
    folder: &Path,
    keep: usize,
    accepted: u64,
) -> io::Result<(Vec<BlobHash>, HashSet<BlobHash>)> {
    let manifests = list(folder)?;
    let up_to = manifests.partition_point(|m| m.steps_done <= accepted);
    let (old, kept) = manifests.split_at(up_to.saturating_sub(keep.max(1)));
    let wanted: HashSet<BlobHash> = kept.iter().flat_map(|m| &m.parts).map(|p| p.blob.hash).collect();
    for manifest in old {
        remove(&file::<Manifest>(folder, manifest.steps_done))?;
    }
    let dropped: HashSet<BlobHash> = old.iter().flat_map(|m| &m.parts).map(|p| p.blob.hash).collect();
    Ok((dropped.difference(&wanted).copied().collect(), wanted))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use protocol::spec::ModelSpec;

    use super::*;
    use control::pipeline::SnapshotPart;
    use protocol::worker_id::WorkerId;

    fn manifest(steps_done: u64, parts: &[&str]) -> Manifest {
        let model =
            ModelSpec { vocabulary: 2, positions: 2, width: 2, heads: 1, layers: 1, tie_embeddings: false };
        let part = |text: &&str| SnapshotPart {
            blob: BlobRef::of(text.as_bytes()),
            holds: vec![],
            worker: WorkerId(1),
        };
        let parts = parts.iter().map(part).collect();
        Manifest { steps_done, epoch: 1, model, micro_batches: 1, state: String::new(), parts }
    }

    #[test]
    fn the_newest_are_kept_and_only_unnamed_blobs_are_dropped() {
        let folder = tempfile::tempdir().unwrap();
        for m in [manifest(5, &["a", "b"]), manifest(10, &["b", "c"]), manifest(20, &["d"])] {
            write(folder.path(), &m).unwrap();
        }
        fs::write(folder.path().join("step-00000030.json"), "{ half").unwrap();
        let named = ["b", "c", "d"].map(|text| BlobHash::of(text.as_bytes()));
        assert_eq!(prune(folder.path(), 2, 20).unwrap(), (vec![BlobHash::of(b"a")], named.into()));
        let left: Vec<u64> = list(folder.path()).unwrap().iter().map(|m| m.steps_done).collect();
        assert_eq!(left, [10, 20]);
    }

    #[test]
    fn a_snapshot_of_work_that_was_rolled_back_does_not_push_out_the_one_in_use() {
        let folder = tempfile::tempdir().unwrap();
        for m in [manifest(5, &["a"]), manifest(10, &["b"]), manifest(20, &["c"]), manifest(30, &["d"])] {
            write(folder.path(), &m).unwrap();
        }
        assert_eq!(prune(folder.path(), 1, 10).unwrap().0, vec![BlobHash::of(b"a")]);
        let left: Vec<u64> = list(folder.path()).unwrap().iter().map(|m| m.steps_done).collect();
        assert_eq!(left, [10, 20, 30]);
    }
}
