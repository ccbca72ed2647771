//! After a crash at any moment of the writes of a snapshot, or of a round, a run goes on from the one before, or from the
//! new one if it was complete: every prefix of the writes is replayed, with the last file whole, half written or empty.

use std::{fs, path::Path};

use axum::body::Bytes;
use control::{
    block::{RoundManifest, Totals},
    pipeline::{Manifest, SnapshotPart},
};
use protocol::{blob::BlobRef, published::Published, spec::ModelSpec, worker_id::WorkerId};

use super::{
    blob_store::BlobStore,
    checkpoint,
    data_dir::DataDir,
    manifests::{self, ManifestFile},
};
use crate::{
    config::RunConfig,
    data::{Dataset, corpus::Source, tokenizer::SavedTokenizer},
};

const LIMIT: u64 = 1000;

/// One write as it reaches the disk.
#[derive(Debug, Clone)]
enum Write {
    File(String, Vec<u8>),
    Folder(String),
    Rename(String, String),
}

impl Write {
    /// Does it below `root`; of a file only so many thousandths of its bytes.
    fn replay(&self, root: &Path, per_mille: usize) {
        match self {
            Self::File(path, bytes) => {
                fs::write(root.join(path), &bytes[..bytes.len() * per_mille / 1000]).unwrap();
            }
            Self::Folder(path) => fs::create_dir_all(root.join(path)).unwrap(),
            Self::Rename(from, to) => fs::rename(root.join(from), root.join(to)).unwrap(),
        }
    }
}

/// The blobs that count from this number on: one that does not change, one that does.
fn parts(number: u64) -> [Vec<u8>; 2] {
    [b"the same at all times".to_vec(), format!("weights after {number}").into_bytes()]
}

/// A manifest of this number, with the blobs of [`parts`].
trait Made: ManifestFile {
    fn made(number: u64) -> Self;
}

impl Made for Manifest {
    fn made(steps_done: u64) -> Self {
        let model =
            ModelSpec { vocabulary: 2, positions: 2, width: 2, heads: 1, layers: 1, tie_embeddings: false };
        let part =
            |bytes: Vec<u8>| SnapshotPart { blob: BlobRef::of(&bytes), holds: vec![], worker: WorkerId(1) };
        let parts = parts(steps_done).map(part).into();
        Manifest { steps_done, epoch: 1, model, micro_batches: 1, state: String::new(), parts }
    }
}

impl Made for RoundManifest {
    fn made(round: u64) -> Self {
        let [table, block] = parts(round).map(|bytes| BlobRef::of(&bytes));
        let published = Published { round, blocks: vec![block], table, outer: None };
        let (updates, totals) = (vec![round], Totals::default());
        RoundManifest { run: testkit::fixtures::block_run(), published, updates, totals, work: vec![] }
    }
}

/// The writes in their order: each blob to a staging file and then under its name, the checkpoint, the manifest.
fn journal<M: Made>(number: u64) -> Vec<Write> {
    let mut writes = Vec::new();
    for bytes in parts(number) {
        let name = format!("blobs/{}", BlobRef::of(&bytes).hash);
        writes.push(Write::File(format!("{name}#1"), bytes));
        writes.push(Write::Rename(format!("{name}#1"), name));
    }
    let half = "checkpoints/.half-x";
    writes.push(Write::Folder(half.into()));
    writes.push(Write::File(format!("{half}/model.safetensors"), b"weights".to_vec()));
    writes.push(Write::File(format!("{half}/config.json"), b"{}".to_vec()));
    writes.push(Write::Rename(half.into(), format!("checkpoints/{}", checkpoint::folder_name(number))));
    let json = serde_json::to_vec_pretty(&M::made(number)).unwrap();
    writes.push(Write::File("snapshots/.tmpx".into(), json));
    writes.push(Write::Rename("snapshots/.tmpx".into(), newest::<M>(number)));
    writes
}

/// Path of the manifest in the run's folder.
fn newest<M: Made>(number: u64) -> String {
    manifests::file::<M>(Path::new("snapshots"), number).display().to_string()
}

/// A folder with the run and its snapshot of step 10, or its round 10.
async fn begun<M: Made>(root: &Path) -> RunConfig {
    let text = root.join("text.txt");
    fs::write(&text, "some words\n".repeat(100)).unwrap();
    let mut config = RunConfig::default();
    config.data.source = Source::Path(text);
    let run = root.join("run");
    let dir = DataDir::open(&run, &config, false).unwrap();
    let dataset = Dataset::of_run(&config.data, &dir).unwrap();
    dir.note_run(&config, &dataset, &dataset.tokenizer.save()).unwrap();
    save::<M>(&dir, 10).await;
    config
}

/// Saves one as the coordinator does.
async fn save<M: Made>(dir: &DataDir, number: u64) {
    let blobs = BlobStore::in_folder(&dir.blobs(), LIMIT).unwrap();
    for bytes in parts(number) {
        blobs.store(Bytes::from(bytes)).await.unwrap();
    }
    checkpoint::write(&dir.checkpoints(), number, "{}", b"weights", &SavedTokenizer::Bytes, 3).unwrap();
    manifests::write(&dir.snapshots(), &M::made(number)).unwrap();
}

/// Takes the folder over and gives the number that the run goes on from, with its blobs verified; then saves 20 again, which
/// must work whatever was left.
async fn resumed<M: Made>(root: &Path, config: &RunConfig) -> u64 {
    let dir = DataDir::open(&root.join("run"), config, true).unwrap();
    let blobs = BlobStore::in_folder(&dir.blobs(), LIMIT).unwrap();
    let found: M = manifests::newest_good(&dir.snapshots(), &blobs).await.unwrap().unwrap();
    let mut held = parts(found.number()).to_vec();
    for blob in found.needed() {
        let bytes = blobs.fetch(blob).await.unwrap();
        held.retain(|part| *part != bytes);
    }
    assert!(held.is_empty(), "not all of its blobs are named");
    for folder in [dir.blobs(), dir.checkpoints(), dir.snapshots()] {
        for entry in fs::read_dir(folder).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            assert!(!name.starts_with('.') && !name.contains('#'), "{name} is left over");
        }
    }
    save::<M>(&dir, 20).await;
    let again: M = manifests::newest_good(&dir.snapshots(), &blobs).await.unwrap().unwrap();
    assert_eq!(again.number(), 20);
    found.number()
}

async fn crashes_at_every_write<M: Made>() {
    let writes = journal::<M>(20);
    for count in 0..=writes.len() {
        for per_mille in [0, 500, 1000] {
            let folder = tempfile::tempdir().unwrap();
            let config = begun::<M>(folder.path()).await;
            for (i, write) in writes[..count].iter().enumerate() {
                let last = i + 1 == count;
                write.replay(&folder.path().join("run"), if last { per_mille } else { 1000 });
            }
            let expected = if count == writes.len() { 20 } else { 10 };
            assert_eq!(resumed::<M>(folder.path(), &config).await, expected, "{count} writes, {per_mille}");
        }
    }
}

/// A file system may have the names before the bytes, and a disk may lose them later.
async fn loses_bytes<M: Made>() {
    let manifest = newest::<M>(20);
    let [_, changing] = parts(20);
    let blob = format!("blobs/{}", BlobRef::of(&changing).hash);
    let flipped: Vec<u8> = changing.iter().map(|byte| byte ^ 1).collect();
    let torn: [(&str, Option<Vec<u8>>); 6] = [
        (&blob, Some(vec![])),
        (&blob, Some(changing[..5].to_vec())),
        (&blob, Some(flipped)),
        (&blob, None),
        (&manifest, Some(vec![])),
        (&manifest, Some(b"{\"steps_done\": 20,".to_vec())),
    ];
    for (path, bytes) in torn {
        let folder = tempfile::tempdir().unwrap();
        let config = begun::<M>(folder.path()).await;
        let run = folder.path().join("run");
        journal::<M>(20).iter().for_each(|write| write.replay(&run, 1000));
        match &bytes {
            Some(bytes) => fs::write(run.join(path), bytes).unwrap(),
            None => fs::remove_file(run.join(path)).unwrap(),
        }
        assert_eq!(resumed::<M>(folder.path(), &config).await, 10, "{path} {bytes:?}");
    }
}

#[tokio::test]
async fn a_crash_at_any_write_leaves_a_run_to_go_on_with() {
    crashes_at_every_write::<Manifest>().await;
    crashes_at_every_write::<RoundManifest>().await;
}

#[tokio::test]
async fn a_name_whose_bytes_are_not_there_does_not_count() {
    loses_bytes::<Manifest>().await;
    loses_bytes::<RoundManifest>().await;
}
