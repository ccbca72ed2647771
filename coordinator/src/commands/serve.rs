//! `cohort serve`: from a run.toml to a coordinator that answers.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context, bail};
use axum::serve::ListenerExt;
use engine::learning_rate::LearningRate;
use tokio::{
    net::TcpListener,
    sync::{broadcast, mpsc, oneshot, watch},
};

use crate::{
    block_mode,
    config::{ConfigFault, ModeName, RunConfig, TrainingConfig},
    data::Dataset,
    mode::Mode,
    run::{self, machine::Settings},
    shell::{self, Actor, BlobStore, Ending, Rounds, RoundsSetup, Shared},
    storage::{data_dir::DataDir, event_log::EventLog, snapshots},
};

/// Messages that may wait for the run machine.
const EVENT_QUEUE: usize = 1024;
/// Curve points that a slow page may lag behind before it has to fetch the curve again.
const POINT_QUEUE: usize = 256;

/// What the command line says beside the run.toml.
#[derive(Debug, Clone)]
pub struct Options {
    pub listen: SocketAddr,
    /// None: `cohort-data/<name of the run>`.
    pub data_dir: Option<PathBuf>,
    /// The run without a file, of which there may be several: without a folder of its own each gets a number.
    pub numbered: bool,
    pub resume: bool,
    pub start_with: Option<u32>,
}

/// A coordinator that is up.
pub struct Serving {
    pub address: SocketAddr,
    pub organizer_token: String,
    pub data_dir: PathBuf,
    /// Hears once, when the run has ended; the pages go on being served.
    pub over: oneshot::Receiver<Ending>,
    /// Ends with an error when the coordinator cannot go on.
    pub failed: tokio::task::JoinHandle<anyhow::Result<()>>,
    shared: Arc<Shared>,
}

impl Serving {
    /// Wait until the last worker has gone.
    pub async fn deserted(&self) {
        self.shared.hub.empty().await;
    }
}

/// The run of a file, or the default run; faults come as text, one a line.
pub fn load(path: Option<&Path>) -> anyhow::Result<RunConfig> {
    let Some(path) = path else { return Ok(RunConfig::default()) };
    RunConfig::load(path).map_err(|faults| anyhow::anyhow!(lines(&faults)))
}

fn lines(faults: &[ConfigFault]) -> String {
    faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// Start a coordinator. Blocks on tokenising; answers requests on the current runtime when it returns.
pub async fn start(mut config: RunConfig, options: Options) -> anyhow::Result<Serving> {
    if let Some(start_with) = options.start_with {
        match config.mode {
            ModeName::Pipeline => config.pipeline.start_with = start_with,
            ModeName::Block if start_with < config.blocks.count => bail!(
                "--start-with {start_with} cannot place {} blocks; wait for at least as many workers",
                config.blocks.count
            ),
            ModeName::Block => config.rounds.start_with = start_with,
        }
    }
    // The port first: whoever loses it should not have tokenised a corpus before.
    let listener = TcpListener::bind(options.listen).await.with_context(|| {
        format!(
            "cannot listen on {}; choose another address with --listen, or end the program that uses it",
            options.listen
        )
    })?;
    let address = listener.local_addr()?;
    let root = options.data_dir.clone().unwrap_or_else(|| {
        let base = Path::new("cohort-data");
        if options.numbered { numbered(base, &config.name, options.resume) } else { base.join(&config.name) }
    });
    let data_dir = DataDir::open(&root, &config, options.resume)?;
    let dataset = prepare(&config, &data_dir).await?;
    let training = &config.training;
    let shape = training.window_shape();
    let train = dataset.train_windows(training.seed, shape, training.micro_batches.unwrap_or(1))?;
    let validation = match training.validate_every {
        0 => None,
        _ => Some(dataset.validation_windows(shape)?),
    };
    let settings = settings(&config, &dataset, validation.as_ref().map_or(0, |v| v.batches()));
    let tokenizer = dataset.tokenizer.save();
    let log = EventLog::open(&data_dir.event_log())?;
    let organizer = data_dir.organizer_token()?;
    // A stage's part is at most the whole model with both moments, and some text; of a block, at most its momentum too.
    let largest_blob = 12 * numbers(&settings.run) + (1 << 20);
    let blobs = BlobStore::in_folder(&data_dir.blobs(), largest_blob)?;
    data_dir.note_run(&config, &tokenizer)?;

    let mut keeper = None;
    let machine = match config.mode {
        ModeName::Pipeline => {
            let manifest = match options.resume {
                true => snapshots::list(&data_dir.snapshots())?.pop(),
                false => None,
            };
            Mode::Pipeline(Box::new(run::machine::Machine::new(settings, manifest)))
        }
        ModeName::Block => {
            let (machine, kept) =
                block_mode::prepare(&config, settings, &blobs, &data_dir, options.resume).await?;
            keeper = Some(kept);
            Mode::Blocks(Box::new(machine))
        }
    };
    let (events, queue) = mpsc::channel(EVENT_QUEUE);
    let (view, views) = watch::channel(serde_json::to_string(&machine.view(std::time::Duration::ZERO))?);
    let (curve, curves) = watch::channel(Arc::new(machine.curve().to_vec()));
    let points = broadcast::Sender::new(POINT_QUEUE);
    let shared = Arc::new(Shared {
        hub: shell::Hub::default(),
        events,
        view: views,
        curve: curves,
        points: points.clone(),
        blobs,
        organizer: organizer.clone(),
    });
    let rounds = match keeper {
        Some(keeper) => {
            let setup = RoundsSetup {
                data_dir: data_dir.clone(),
                tokenizer: tokenizer.clone(),
                keep: config.snapshots.keep as usize,
                seed: training.seed,
                draws: config.rounds.draws,
                local_steps: config.rounds.local_steps,
                steps: training.steps,
                slots: config.session.max_workers,
            };
            Some(Rounds::start(keeper, setup, shared.clone())?)
        }
        None => None,
    };
    let actor = Actor {
        machine,
        shared: shared.clone(),
        events: queue,
        train,
        validation,
        log,
        data_dir,
        keep: config.snapshots.keep as usize,
        tokenizer,
        rounds,
        view,
        curve,
        points,
    };
    let (ended, over) = oneshot::channel();
    let router = shell::router(shared.clone());
    let failed = tokio::spawn(async move {
        // Nagle's algorithm would hold back the end of a frame for up to a round trip.
        let listener = listener.tap_io(|socket| {
            if let Err(e) = socket.set_nodelay(true) {
                tracing::debug!("a socket keeps Nagle's algorithm: {e}");
            }
        });
        let server = axum::serve(listener, router);
        tokio::select! {
            result = actor.run(ended) => result,
            result = server => Ok(result?),
        }
    });
    Ok(Serving { address, organizer_token: organizer, data_dir: root, over, failed, shared })
}

/// `NAME`, `NAME-2`, `NAME-3`...: the first that is free, or to resume the last that is not.
fn numbered(base: &Path, name: &str, resume: bool) -> PathBuf {
    let folder = |number: u32| match number {
        1 => base.join(name),
        number => base.join(format!("{name}-{number}")),
    };
    let free = (1..u32::MAX).find(|number| !folder(*number).exists()).unwrap_or(u32::MAX);
    folder(if resume { free.saturating_sub(1).max(1) } else { free })
}

async fn prepare(config: &RunConfig, data_dir: &DataDir) -> anyhow::Result<Dataset> {
    let (data, tokens) = (config.data.clone(), data_dir.tokens());
    let dataset = tokio::task::spawn_blocking(move || {
        Dataset::prepare(
            &data.source,
            data.tokenizer,
            data.tokenizer_files.as_deref(),
            data.validation_fraction,
            &tokens,
        )
    })
    .await??;
    if dataset.tokens.is_empty() {
        bail!("data.source: the corpus has no tokens; give a longer text");
    }
    Ok(dataset)
}

/// The rate by step.
pub fn learning_rate(training: &TrainingConfig) -> LearningRate {
    LearningRate {
        peak: training.learning_rate,
        floor: training.final_learning_rate,
        warmup_steps: training.warmup_steps,
        total_steps: training.steps,
    }
}

/// Numbers in the whole model.
fn numbers(run: &protocol::spec::RunSpec) -> u64 {
    block_mode::numbers(run).unwrap_or_else(|| crate::plan::parameters(&run.model))
}

pub(crate) fn settings(config: &RunConfig, dataset: &Dataset, validation_batches: u64) -> Settings {
    let training = &config.training;
    Settings {
        run: config.run_spec(dataset.tokenizer.vocabulary()),
        steps: training.steps,
        seed: training.seed,
        stages: config.pipeline.stages,
        start_with: match config.mode {
            ModeName::Pipeline => config.pipeline.start_with,
            ModeName::Block => config.rounds.start_with,
        },
        learning_rate: learning_rate(training),
        validate_every: training.validate_every,
        validation_batches: u64::from(training.validation_batches).min(validation_batches) as u32,
        snapshot_every: config.snapshots.every,
        heartbeat: config.session.heartbeat(),
        lease: config.session.lease(),
        step_deadline: config.session.step_deadline(),
        max_workers: config.session.max_workers,
        corpus: dataset.corpus.clone(),
        tokenizer: config.data.tokenizer.name().to_string(),
        train_tokens: dataset.tokens.train_tokens(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_without_a_file_get_numbers_and_the_last_is_resumed() {
        let base = tempfile::tempdir().unwrap();
        let name = |resume| {
            let folder = numbered(base.path(), "run", resume);
            folder.file_name().unwrap().to_str().unwrap().to_owned()
        };
        assert_eq!((name(false), name(true)), ("run".into(), "run".into()));
        std::fs::create_dir(base.path().join("run")).unwrap();
        assert_eq!((name(false), name(true)), ("run-2".into(), "run".into()));
        std::fs::create_dir(base.path().join("run-2")).unwrap();
        assert_eq!((name(false), name(true)), ("run-3".into(), "run-2".into()));
    }
}
