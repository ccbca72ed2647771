//! Starts a coordinator: the folder, the data, the run, the network, in this order.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use anyhow::{Context, bail};
use axum::body::Bytes;
use control::{
    Mode,
    block::{BlockRun, RoundManifest, Totals},
    curve::Curve,
    pipeline::PipelineRun,
};
use engine::aggregation::server::Server;
use protocol::{
    frame, limits,
    serving::Samples,
    spec::{Moments, RunSpec},
    tensor::TensorMeta,
};
use tokio::{
    net::TcpListener,
    sync::{Semaphore, broadcast, mpsc, oneshot, watch},
};

use super::{Options, settings};
use crate::{
    config::{ModeName, RunConfig, ServingPlace},
    data::{
        Dataset,
        tokenizer::Tokenizer,
        windows::{TrainWindows, ValidationWindows},
    },
    model_folder,
    runtime::{
        Ending, Interpreter, ModeIo, Pages,
        block::{self, BlockIo, BlockSetup},
        pipeline::PipelineIo,
    },
    server::{
        self, Hub, Limits, Security, Shared,
        trust::{self, OwnAuthority, to_tls},
    },
    serving::{Desk, Most, ROWS, Serving, Source, Traversals, Writer, WriterThread},
    storage::{
        beginning, blob_store::BlobStore, data_dir::DataDir, event_log::EventLog, rounds, snapshots,
        watch::StorageWatch,
    },
    tls::Tls,
};

/// Messages that may wait for the run.
const EVENT_QUEUE: usize = 1024;
/// Kibibytes of uploads that may be in memory while they arrive: as many pieces as there are places by default.
const UPLOADS: usize = 256 << 10;
/// Files that may be open where the system does not say.
const FILES: u64 = 1024;
/// Curve points that a slow page may lag behind before it has to fetch the curve again.
const POINT_QUEUE: usize = 256;

/// A coordinator that is up.
pub struct RunningCoordinator {
    /// Where it listens.
    pub address: SocketAddr,
    /// Bearer token of the organizer.
    pub organizer_token: String,
    /// It speaks https.
    pub is_secure: bool,
    /// Fingerprint (SHA-256) of the run's own certificate authority, where that vouches for it.
    pub authority: Option<String>,
    /// Names by which it is reached, beside addresses and `localhost`.
    pub hosts: Vec<String>,
    /// Where the run is kept.
    pub data_dir: PathBuf,
    /// Hears once, when the run has ended; the pages go on being served.
    pub over: oneshot::Receiver<Ending>,
    /// Ends with an error when the coordinator cannot go on.
    pub failed: tokio::task::JoinHandle<anyhow::Result<()>>,
    shared: Arc<Shared>,
}

impl RunningCoordinator {
    /// Waits until the last worker has gone.
    pub async fn deserted(&self) {
        self.shared.hub.empty().await;
    }
}

/// Starts a coordinator. Blocks on tokenising; answers requests on the current runtime when it returns.
///
/// # Errors
/// A port or folder that cannot be had, data that cannot be read, a run that is not the one in the folder; in words.
pub async fn start(mut config: RunConfig, options: Options) -> anyhow::Result<RunningCoordinator> {
    if let Some(start_with) = options.start_with {
        override_start_with(&mut config, start_with)?;
    }
    // The port first: whoever loses it should not have tokenised a corpus before.
    let listener = TcpListener::bind(options.listen).await.with_context(|| {
        format!(
            "cannot listen on {}; choose another address with --listen, or end the program that uses it",
            options.listen
        )
    })?;
    let root = options.data_dir.clone().unwrap_or_else(|| {
        let base = Path::new("cohort-data");
        if options.numbered { numbered(base, &config.name, options.resume) } else { base.join(&config.name) }
    });
    let data_dir = DataDir::open(&root, &config, options.resume)?;
    let tls = match options.certificate {
        Some(source) => Some(Tls::open(source, root.join("tls"), options.hosts.clone())?),
        None => None,
    };
    let dataset = match (config.mode, &config.model.from) {
        (ModeName::Serve, Some(folder)) => of_model(folder, options.resume, &data_dir)?,
        _ => prepare(&config, &data_dir).await?,
    };
    let tokenizer = dataset.tokenizer.save();
    if options.resume {
        data_dir.same_data(&dataset)?;
    }
    // Before the folder tells of a run: a text that is too short for one leaves none.
    let windows = match config.mode {
        ModeName::Serve => None,
        ModeName::Pipeline | ModeName::Block => Some(windows(&config, &dataset)?),
    };
    let past = EventLog::read(&data_dir.event_log())?;
    let run = config.run_spec(dataset.tokenizer.vocabulary());
    // A stage's part is at most the whole model with both moments, and some text; of a block, at most its momentum too.
    let largest_blob = Moments::Full.snapshot_bytes() * settings::numbers(&run) + (1 << 20);
    let blobs = BlobStore::in_folder(&data_dir.blobs(), largest_blob)?;
    if let Some(folder) = &config.model.from
        && (!options.resume || snapshots::list(&data_dir.snapshots())?.is_empty())
    {
        beginning::from_folder(folder, &run, &dataset.tokenizer, &blobs, &data_dir.snapshots()).await?;
    }
    data_dir.note_run(&config, &dataset, &tokenizer)?;

    let (events, queue) = mpsc::channel(EVENT_QUEUE);
    let (view, views) = watch::channel(Bytes::new());
    let (curve, curves) = watch::channel(Arc::default());
    let points = broadcast::Sender::new(POINT_QUEUE);
    let organizer = data_dir.organizer_token()?;
    let (serving, writer) = serving(&config, &run, &dataset, &data_dir)?;
    let shared = Arc::new(Shared {
        hub: Hub::default(),
        limits: Limits::new(&config.session, config.serving.texts_per_minute, open_files()),
        serving,
        events: events.clone(),
        view: views,
        curve: curves,
        points: points.clone(),
        blobs,
        uploads: Arc::new(Semaphore::new(UPLOADS)),
        storage: StorageWatch::new(&root, events),
        organizer: organizer.clone(),
        next_worker: AtomicU64::new(past.last_worker + 1),
        largest_frame: largest_frame(&run, config.serving.at_once),
        hosts: Some(options.hosts.clone()),
    });
    let pages = Pages { view, curve, points };
    let log = EventLog::open(&data_dir.event_log())?;
    let up = Up {
        config,
        dataset,
        windows,
        data_dir: data_dir.clone(),
        shared: shared.clone(),
        resume: options.resume,
    };
    let curve = Curve::new(past.curve);
    let (ended, over) = oneshot::channel();
    let address = listener.local_addr()?;
    let authority = tls.as_ref().and_then(Tls::fingerprint);
    let is_secure = tls.is_some();
    let network = Network { listener, tls, writer };
    let failed = match up.config.mode {
        ModeName::Pipeline | ModeName::Serve => {
            let (told, mode_events) = mpsc::unbounded_channel();
            let (run, io) = up.pipeline(curve, told).await?;
            let (shared, events, told) = (shared.clone(), queue, mode_events);
            listen(network, Interpreter { run, io, shared, events, told, log, data_dir, pages }, ended)?
        }
        ModeName::Block => {
            let (told, mode_events) = mpsc::unbounded_channel();
            let (run, io) = up.block(curve, told).await?;
            let (shared, events, told) = (shared.clone(), queue, mode_events);
            listen(network, Interpreter { run, io, shared, events, told, log, data_dir, pages }, ended)?
        }
    };
    let hosts = options.hosts;
    Ok(RunningCoordinator {
        address,
        organizer_token: organizer,
        is_secure,
        authority,
        hosts,
        data_dir: root,
        over,
        failed,
        shared,
    })
}

fn override_start_with(config: &mut RunConfig, start_with: u32) -> anyhow::Result<()> {
    match config.mode {
        ModeName::Pipeline | ModeName::Serve => config.pipeline.start_with = start_with,
        ModeName::Block if start_with < config.blocks.count => bail!(
            "--start-with {start_with} cannot place {} blocks; wait for at least as many workers",
            config.blocks.count
        ),
        ModeName::Block => config.rounds.start_with = start_with,
    }
    Ok(())
}

/// Where connections come in.
struct Network {
    listener: TcpListener,
    tls: Option<Tls>,
    /// Ends with them.
    writer: Option<WriterThread>,
}

/// Lets the run and the network go on until the process ends.
fn listen<I>(
    network: Network,
    interpreter: Interpreter<I>,
    ended: oneshot::Sender<Ending>,
) -> anyhow::Result<tokio::task::JoinHandle<anyhow::Result<()>>>
where
    I: ModeIo + Send + 'static,
    I::Mode: Send,
    <I::Mode as Mode>::Event: Send,
    <I::Mode as Mode>::Action: Send,
{
    let run = &interpreter.run;
    interpreter.pages.view.send_replace(serde_json::to_vec(&run.view(Duration::ZERO))?.into());
    interpreter.pages.curve.send_replace(Arc::new(run.curve().to_vec()));
    let shared = &interpreter.shared;
    let mut router = server::router(shared.clone());
    let limits = shared.limits.clone();
    let Network { listener, tls, writer } = network;
    let mut security = None;
    if let Some(tls) = &tls {
        let mut plain = to_tls(shared.hosts.clone());
        if let (Some(pem), Some(fingerprint)) = (tls.authority(), tls.fingerprint()) {
            let authority = OwnAuthority { pem: pem.to_owned(), fingerprint };
            let trust = trust::routes(authority);
            plain = plain.merge(trust.clone());
            router = router.merge(trust);
        }
        security = Some(Security { acceptor: tls.acceptor(), plain });
    }
    let certificate = async move {
        match tls {
            Some(tls) => tls.keep_current().await,
            None => std::future::pending().await,
        }
    };
    Ok(tokio::spawn(async move {
        let _writer = writer;
        tokio::select! {
            result = interpreter.run(ended) => result,
            () = server::serve(listener, router, limits, security) => Ok(()),
            () = certificate => Ok(()),
        }
    }))
}

/// Who writes texts as the run's file says; the writer is started.
fn serving(
    config: &RunConfig,
    run: &RunSpec,
    dataset: &Dataset,
    data_dir: &DataDir,
) -> anyhow::Result<(Serving, Option<WriterThread>)> {
    let settings = config.serving.clone();
    let most = Most {
        // Blocks write one text after the other.
        at_once: match (&run.blocks, settings.r#where) {
            (Some(_), _) => 1,
            (None, ServingPlace::Workers) => (settings.at_once as usize).min(limits::TEXTS),
            (None, _) => settings.at_once as usize,
        },
        waiting: settings.waiting as usize,
        bytes: settings.cache_bytes(),
    };
    let tokenizer =
        Arc::new(Tokenizer::restore(&dataset.tokenizer.save(), data_dir.tokenizer_files().as_deref())?);
    let traversals = Traversals::new(&run.model);
    let (desk, writer) = match settings.r#where {
        ServingPlace::Off => {
            let desk = Desk::new(most, Samples::default());
            let words =
                "this run writes no texts; its organizer can let it with [serving] where = \"coordinator\"";
            desk.in_use(None, Some(words.into()));
            (desk, None)
        }
        place @ (ServingPlace::Coordinator | ServingPlace::Workers) => {
            let threads = settings.threads as usize;
            let source = match place {
                ServingPlace::Workers => Source::Workers {
                    traversals: traversals.clone(),
                    at_once: most.at_once,
                    drafts: settings.drafts as usize,
                },
                _ => Source::Checkpoints(data_dir.checkpoints()),
            };
            let desk = |samples| Desk::new(most, samples);
            let writer = Writer::new(desk, source, data_dir, run.clone(), tokenizer.clone(), threads)?;
            (writer.desk(), Some(writer.start()?))
        }
    };
    let name = config.name.clone();
    Ok((
        Serving {
            name,
            settings,
            run: run.clone(),
            parameters: settings::numbers(run),
            tokenizer,
            desk,
            traversals,
        },
        writer,
    ))
}

/// Files that this process may have open, after asking for as many as it may have: most systems begin with few.
fn open_files() -> u64 {
    rlimit::increase_nofile_limit(u64::MAX).unwrap_or(FILES)
}

/// Largest frame that a session of this run may carry: a tensor of its shapes, or a probe.
fn largest_frame(run: &RunSpec, at_once: u32) -> usize {
    let shape = [run.sequences, run.context, run.model.width];
    let tensor = TensorMeta::expected_bytes(run.wire, &shape).unwrap_or(frame::MAX_PAYLOAD as u64);
    // Rows of all texts, on their way from hop to hop.
    let rows = if run.cache_bytes > 0 { ROWS as u64 * u64::from(at_once) } else { 0 };
    let tensor = tensor.max(rows.saturating_mul(4 * u64::from(run.model.width)));
    (tensor.max(limits::PROBE as u64) as usize + limits::HEADER_BYTES + 16).min(frame::MAX_FRAME)
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

/// The tokenizer of a run that only writes texts.
fn of_model(folder: &Path, resume: bool, data_dir: &DataDir) -> anyhow::Result<Dataset> {
    let saved = data_dir.saved_tokenizer().filter(|_| resume);
    let tokenizer = match saved {
        Some(saved) => Tokenizer::restore(&saved, data_dir.tokenizer_files().as_deref())?,
        None => model_folder::tokenizer(folder)?,
    };
    Ok(Dataset::without_text(tokenizer, &data_dir.tokens())?)
}

async fn prepare(config: &RunConfig, data_dir: &DataDir) -> anyhow::Result<Dataset> {
    let (data, data_dir) = (config.data.clone(), data_dir.clone());
    let dataset = tokio::task::spawn_blocking(move || Dataset::of_run(&data, &data_dir)).await??;
    if dataset.tokens.is_empty() {
        bail!("data.source: the corpus has no tokens; give a longer text");
    }
    Ok(dataset)
}

/// Where the run's batches come from.
struct Windows {
    train: TrainWindows,
    /// None where the held-out split is never measured.
    validation: Option<ValidationWindows>,
}

fn windows(config: &RunConfig, dataset: &Dataset) -> anyhow::Result<Windows> {
    let training = &config.training;
    let shape = training.window_shape();
    let micro_batches = match config.mode {
        ModeName::Pipeline => training.micro_batches.unwrap_or(1),
        ModeName::Block | ModeName::Serve => 1,
    };
    let train = dataset.train_windows(training.seed, shape, micro_batches)?;
    let validation = match training.validate_every {
        0 => None,
        _ => Some(dataset.validation_windows(shape)?),
    };
    Ok(Windows { train, validation })
}

/// What both modes' starts need.
struct Up {
    config: RunConfig,
    dataset: Dataset,
    /// None where nothing is trained.
    windows: Option<Windows>,
    data_dir: DataDir,
    shared: Arc<Shared>,
    resume: bool,
}

impl Up {
    async fn pipeline(
        self,
        curve: Curve,
        told: mpsc::UnboundedSender<control::pipeline::Event>,
    ) -> anyhow::Result<(PipelineRun, PipelineIo)> {
        let Up { config, dataset, windows, data_dir, shared, resume } = self;
        let (train, validation) = windows.map_or((None, None), |w| (Some(w.train), w.validation));
        let settings = settings::settings(&config, &dataset, validation.as_ref().map_or(0, |v| v.batches()));
        shared.serving.traversals.tell(told.clone());
        let manifest = match resume || config.model.from.is_some() {
            true => snapshots::newest_good(&data_dir.snapshots(), &shared.blobs).await?,
            false => None,
        };
        let run = PipelineRun::new(settings, config.pipeline.stages, manifest, curve);
        let keep = config.snapshots.keep as usize;
        let tokenizer = dataset.tokenizer.save();
        let step = tracing::Span::none();
        let leftover = config.session.step_deadline();
        Ok((run, PipelineIo { shared, told, train, validation, data_dir, keep, leftover, tokenizer, step }))
    }

    async fn block(
        self,
        curve: Curve,
        told: mpsc::UnboundedSender<control::block::Event>,
    ) -> anyhow::Result<(BlockRun, BlockIo)> {
        let Up { config, dataset, windows, data_dir, shared, resume } = self;
        let Some(Windows { train, validation }) = windows else { bail!("block mode trains") };
        let training = &config.training;
        let settings = settings::settings(&config, &dataset, validation.as_ref().map_or(0, |v| v.batches()));
        let run = settings.run.clone();
        let rules = config.rounds.rules(training.learning_rate);
        let manifest = match resume {
            true => rounds::newest_good(&data_dir.snapshots(), &shared.blobs).await?,
            false => None,
        };
        let server = match &manifest {
            Some(manifest) => block::resume(&shared.blobs, manifest, &run, rules).await?,
            None => Server::draw(&run, settings.seed, rules)?,
        };
        let published = match &manifest {
            Some(manifest) => manifest.published.clone(),
            None => {
                let first = |published| RoundManifest {
                    run: run.clone(),
                    updates: vec![0; run.blocks.map_or(0, |blocks| blocks.count as usize)],
                    totals: Totals::default(),
                    work: vec![],
                    published,
                };
                block::publish(&shared.blobs, &data_dir, &server, first, 0).await?
            }
        };
        let round_settings = settings::round_settings(&config, &run)?;
        let setup = BlockSetup {
            data_dir,
            tokenizer: dataset.tokenizer.save(),
            keep: config.snapshots.keep as usize,
            seed: training.seed,
            draws: config.rounds.draws,
            local_steps: config.rounds.local_steps,
            steps: training.steps,
            slots: config.session.max_workers,
        };
        let run = BlockRun::new(settings, round_settings, published, manifest, curve);
        Ok((run, BlockIo::start(server, setup, shared, told, train, validation)?))
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
