//! Manifests of snapshots on disk. A manifest is written after all its parts: it makes the snapshot count.

use std::{
    collections::HashSet,
    fs, io,
    path::{Path, PathBuf},
};

use protocol::blob::BlobHash;

use super::blob_store::BlobStore;
use super::{remove, write_atomically};
use control::pipeline::Manifest;

fn file(folder: &Path, steps_done: u64) -> PathBuf {
    folder.join(format!("step-{steps_done:08}.json"))
}

/// Write a manifest.
pub fn write(folder: &Path, manifest: &Manifest) -> io::Result<()> {
    write_atomically(&file(folder, manifest.steps_done), &serde_json::to_vec_pretty(manifest)?)
}

/// All manifests that can be read, oldest first. A damaged one does not count.
pub fn list(folder: &Path) -> io::Result<Vec<Manifest>> {
    let mut manifests: Vec<Manifest> = fs::read_dir(folder)?
        .filter_map(|entry| serde_json::from_slice(&fs::read(entry.ok()?.path()).ok()?).ok())
        .collect();
    manifests.sort_by_key(|m: &Manifest| m.steps_done);
    Ok(manifests)
}

/// The newest manifest whose blobs are all whole. What is newer and damaged is said aloud.
///
/// # Errors
/// A folder that cannot be read; manifests of which not one is whole.
pub async fn newest_good(folder: &Path, blobs: &BlobStore) -> anyhow::Result<Option<Manifest>> {
    let manifests = list(folder)?;
    let there_are_some = !manifests.is_empty();
    for manifest in manifests.into_iter().rev() {
        let mut damaged = None;
        for blob in manifest.parts.iter().map(|part| part.blob).collect::<Vec<_>>() {
            if !blobs.is_whole(blob).await? {
                damaged = Some(blob.hash);
                break;
            }
        }
        match damaged {
            None => return Ok(Some(manifest)),
            Some(blob) => tracing::warn!(
                "the snapshot of step {} cannot be used: the blob {blob} is missing or damaged; going back to the one \
                 before",
                manifest.steps_done
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

/// Forget what is older than the newest `keep` manifests up to `accepted`, the one a run would go back to; gives
/// the blobs that no manifest names any more.
///
/// Later manifests are of work that was rolled back and is being done again. They stay, and they push nothing out:
/// workers may be loading the accepted one just now.
pub fn prune(folder: &Path, keep: usize, accepted: u64) -> io::Result<Vec<BlobHash>> {
    let manifests = list(folder)?;
    let up_to = manifests.partition_point(|m| m.steps_done <= accepted);
    let (old, kept) = manifests.split_at(up_to.saturating_sub(keep.max(1)));
    let wanted: HashSet<BlobHash> = kept.iter().flat_map(|m| &m.parts).map(|p| p.blob.hash).collect();
    for manifest in old {
        remove(&file(folder, manifest.steps_done))?;
    }
    let dropped: HashSet<BlobHash> = old.iter().flat_map(|m| &m.parts).map(|p| p.blob.hash).collect();
    Ok(dropped.difference(&wanted).copied().collect())
}

#[cfg(test)]
mod tests {
    use protocol::{blob::BlobRef, spec::ModelSpec};

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
        assert_eq!(prune(folder.path(), 2, 20).unwrap(), vec![BlobHash::of(b"a")]);
        let left: Vec<u64> = list(folder.path()).unwrap().iter().map(|m| m.steps_done).collect();
        assert_eq!(left, [10, 20]);
    }

    #[test]
    fn a_snapshot_of_work_that_was_rolled_back_does_not_push_out_the_one_in_use() {
        let folder = tempfile::tempdir().unwrap();
        for m in [manifest(5, &["a"]), manifest(10, &["b"]), manifest(20, &["c"]), manifest(30, &["d"])] {
            write(folder.path(), &m).unwrap();
        }
        assert_eq!(prune(folder.path(), 1, 10).unwrap(), vec![BlobHash::of(b"a")]);
        let left: Vec<u64> = list(folder.path()).unwrap().iter().map(|m| m.steps_done).collect();
        assert_eq!(left, [10, 20, 30]);
    }
}
