//! Whatever is wrong, one clear sentence says what and how to mend it, and nothing is left half-written.

use std::{fs, path::Path, time::Duration};

use anyhow::{Result, ensure};
use tests::{Coordinator, cohort, cohort::Finished, runs::TinyRun};

/// For a program that only has to say no.
const LIMIT: Duration = Duration::from_mins(2);

/// The file that a coordinator locks. It stays, as it could not be removed without a moment in which two lock it; alone
/// it tells of no run.
const LOCK: &str = "coordinator.lock";

/// A folder with a `run.toml` and a corpus beside it.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new(run_toml: &str, corpus: &[u8]) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("cohort-test-").tempdir()?;
        fs::write(folder.path().join("run.toml"), run_toml)?;
        fs::write(folder.path().join("corpus.txt"), corpus)?;
        Ok(Self(folder))
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    async fn validate(&self) -> Result<Finished> {
        cohort::run(&["validate", &self.path("run.toml")], LIMIT).await
    }

    async fn serve(&self, arguments: &[&str]) -> Result<Finished> {
        let run = self.path("run.toml");
        cohort::run(&[&["serve", &run, "--listen", "127.0.0.1:0"], arguments].concat(), LIMIT).await
    }

    /// Refused before anything that tells of a run was written.
    async fn refuses_to_serve(&self, words: &[&str]) -> Result<()> {
        let data = self.path("data");
        refused(&self.serve(&["--data-dir", &data]).await?, words)?;
        self.left_nothing_but(&[LOCK])
    }

    /// The data folder holds only files whose names end so.
    fn left_nothing_but(&self, endings: &[&str]) -> Result<()> {
        let left = files_below(Path::new(&self.path("data")));
        let expected = |file: &String| endings.iter().any(|ending| file.ends_with(ending));
        ensure!(left.iter().all(expected), "left half-written: {left:?}");
        Ok(())
    }
}

fn files_below(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    entries
        .filter_map(Result::ok)
        .flat_map(|entry| match entry.path() {
            path if path.is_dir() => files_below(&path),
            path => vec![path.display().to_string()],
        })
        .collect()
}

/// Ended with an exit code and these words, and neither a panic nor a stack trace.
fn refused(finished: &Finished, words: &[&str]) -> Result<()> {
    let said = &finished.stderr;
    ensure!(
        finished.code.is_some_and(|code| code != 0),
        "exit code {:?}, having said: {said}",
        finished.code
    );
    for word in words {
        ensure!(said.contains(word), "no `{word}` in: {said}");
    }
    for bad in ["panicked", "RUST_BACKTRACE", "Os {"] {
        ensure!(!said.contains(bad), "`{bad}` in: {said}");
    }
    ensure!(!finished.stdout.contains("listening"), "it listened all the same: {}", finished.stdout);
    Ok(())
}

const CORPUS: &[u8] = include_bytes!("../data/wikitext-2/test.txt");

#[tokio::test]
async fn a_good_run_is_found_good() -> Result<()> {
    let folder = Folder::new("[data]\nsource = 'corpus.txt'\n", CORPUS)?;
    let finished = folder.validate().await?;
    ensure!(finished.code == Some(0), "{}", finished.stderr);
    Ok(())
}

#[tokio::test]
async fn faults_of_run_toml_are_named_all_at_once_with_line_and_field() -> Result<()> {
    let toml = "[training]\nlearnig_rate = 1e-3\nsteps = 'many'\n\n[model]\nwidth = 50\nheads = 4\n";
    let folder = Folder::new(toml, CORPUS)?;
    let words =
        ["run.toml:2:", "learnig_rate", "learning_rate", "run.toml:3:", "training.steps", "50", "heads"];
    refused(&folder.validate().await?, &words)?;
    folder.refuses_to_serve(&words).await
}

#[tokio::test]
async fn toml_that_is_none_is_named_with_its_line() -> Result<()> {
    let folder = Folder::new("name = 'ok'\n[model\n", CORPUS)?;
    refused(&folder.validate().await?, &["run.toml:2"])
}

#[tokio::test]
async fn a_missing_run_toml_is_named() -> Result<()> {
    refused(&cohort::run(&["validate", "no-such-run.toml"], LIMIT).await?, &["no-such-run.toml"])?;
    refused(&cohort::run(&["serve", "no-such-run.toml"], LIMIT).await?, &["no-such-run.toml"])
}

#[tokio::test]
async fn a_missing_corpus_is_named() -> Result<()> {
    let folder = Folder::new("[data]\nsource = 'missing.txt'\n", CORPUS)?;
    let words = ["data.source", "missing.txt"];
    refused(&folder.validate().await?, &words)?;
    folder.refuses_to_serve(&words).await
}

#[tokio::test]
async fn an_empty_corpus_is_named() -> Result<()> {
    let folder = Folder::new("[data]\nsource = 'corpus.txt'\n", b"")?;
    folder.refuses_to_serve(&["data.source", "corpus.txt"]).await
}

#[tokio::test]
async fn a_corpus_shorter_than_one_sequence_is_named() -> Result<()> {
    let folder = Folder::new("[data]\nsource = 'corpus.txt'\n", b"short")?;
    let data = folder.path("data");
    refused(&folder.serve(&["--data-dir", &data]).await?, &["data.source"])?;
    // A complete token file may stay: it bears the corpus's hash, and the next run uses it.
    folder.left_nothing_but(&[LOCK, ".tokens"])
}

#[tokio::test]
async fn bytes_that_are_no_characters_are_named() -> Result<()> {
    let run = "[data]\nsource = 'corpus.txt'\ntokenizer = 'characters'\n";
    let mut corpus = CORPUS[..10_000].to_vec();
    corpus.extend([0xff, 0xfe]);
    let folder = Folder::new(run, &corpus)?;
    folder.refuses_to_serve(&["UTF-8", "10000", "tokenizer"]).await
}

#[tokio::test]
async fn a_port_in_use_is_named() -> Result<()> {
    let taken = std::net::TcpListener::bind("127.0.0.1:0")?;
    let address = taken.local_addr()?.to_string();
    let folder = Folder::new("[data]\nsource = 'corpus.txt'\n", CORPUS)?;
    let (run, data) = (folder.path("run.toml"), folder.path("data"));
    let finished = cohort::run(&["serve", &run, "--listen", &address, "--data-dir", &data], LIMIT).await?;
    refused(&finished, &[&address, "--listen"])?;
    ensure!(!Path::new(&data).exists(), "the data folder was made all the same");
    Ok(())
}

#[tokio::test]
async fn a_data_folder_that_cannot_be_written_is_named() -> Result<()> {
    let folder = Folder::new("[data]\nsource = 'corpus.txt'\n", CORPUS)?;
    // Below a file, so that it holds for root too.
    let data = folder.path("corpus.txt/data");
    refused(&folder.serve(&["--data-dir", &data]).await?, &["corpus.txt/data", "--data-dir"])
}

#[tokio::test]
async fn a_link_that_is_none_is_named() -> Result<()> {
    refused(&cohort::run(&["work", "not a link", "--backend", "cpu"], LIMIT).await?, &["not a link"])
}

#[tokio::test]
async fn a_checkpoint_that_is_none_is_named() -> Result<()> {
    let folder = Folder::new("", CORPUS)?;
    refused(&cohort::run(&["generate", &folder.path("nowhere")], LIMIT).await?, &["nowhere"])?;
    fs::create_dir(folder.path("broken"))?;
    fs::write(folder.path("broken/model.safetensors"), b"{}")?;
    refused(&cohort::run(&["generate", &folder.path("broken")], LIMIT).await?, &["broken"])
}

#[tokio::test]
async fn a_folder_that_another_coordinator_uses_is_named() -> Result<()> {
    let coordinator = Coordinator::start(&TinyRun::default().toml(), &[]).await?;
    let data = coordinator.data();
    let run = data.with_file_name("run.toml").display().to_string();
    let data = data.display().to_string();
    let serve = ["serve", &run, "--listen", "127.0.0.1:0", "--data-dir", &data];
    let words = ["in use by another coordinator", &data, "--data-dir"];
    refused(&cohort::run(&serve, LIMIT).await?, &words)?;
    refused(&cohort::run(&[&serve[..], &["--resume"]].concat(), LIMIT).await?, &words)?;
    // The one that was there first has not noticed, and once it is gone, however it went, the folder is free.
    coordinator.api.run().await?;
    coordinator.kill_and_resume().await?.api.run().await?;
    Ok(())
}
