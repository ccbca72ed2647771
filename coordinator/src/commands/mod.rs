//! The command line.

use std::{io::Write, net::SocketAddr, path::PathBuf};

use anyhow::{Context, bail};
use clap::{Parser, Subcommand, ValueEnum};
use coordinator::{evaluate, generate, predict, recheck, reproduce, serve, simulate};
use protocol::{spec::Backend, view::Phase};
use tracing_subscriber::EnvFilter;

/// Train one language model across the browsers people already have open.
#[derive(Parser)]
#[command(name = "cohort", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Coordinate a run: serve the pages, relay tensors, keep snapshots.
    Serve {
        /// The run; without one, a small default run on the built-in dictionary.
        run: Option<PathBuf>,
        /// Address to listen on; port 0 takes a free one.
        #[arg(long, default_value = "127.0.0.1:8080")]
        listen: SocketAddr,
        /// Folder for everything the run keeps [default: cohort-data/<name of the run>, for the default run numbered].
        #[arg(long)]
        data_dir: Option<PathBuf>,
        /// Go on with the run in the data directory from its last snapshot.
        #[arg(long)]
        resume: bool,
        /// Workers to wait for before the first step, in place of pipeline.start_with.
        #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
        start_with: Option<u32>,
        /// End the program when the run is over.
        #[arg(long)]
        exit_when_over: bool,
        /// Write the log as JSON lines.
        #[arg(long)]
        log_json: bool,
    },
    /// Take part in a run as a native worker.
    Work {
        /// Link that the coordinator printed, such as http://127.0.0.1:8080.
        url: String,
        /// Compute on this backend [default: the fastest].
        #[arg(long)]
        backend: Option<BackendChoice>,
        /// Name shown to the organizer.
        #[arg(long, default_value = "native worker")]
        name: String,
        /// Megabytes that its part of the model may take [default: what it needs].
        #[arg(long, value_name = "MB", value_parser = clap::value_parser!(u64).range(1..))]
        memory: Option<u64>,
        /// Write the log as JSON lines.
        #[arg(long)]
        log_json: bool,
    },
    /// Check a run.toml and name every fault in it; predict what it comes to on a list of devices.
    Validate {
        run: PathBuf,
        /// Devices to predict for, in TOML: [[device]] with gflops, and if known name, memory_mb, up_mbit, down_mbit,
        /// round_trip_ms.
        #[arg(long, value_name = "FILE")]
        devices: Option<PathBuf>,
    },
    /// Measure a run's newest checkpoint on held-out text; in block mode with all controls.
    Evaluate {
        /// Data directory of the run, such as cohort-data/<name of the run>.
        data_dir: PathBuf,
        /// Held-out batches.
        #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..))]
        batches: u32,
        /// Draws of noise whose probabilities are averaged.
        #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1000))]
        draws: u32,
        /// Train the two autoregressive references on as much layer work too: that takes about as long as the run did.
        #[arg(long)]
        references: bool,
    },
    /// Block mode: do accepted work again from the published weights, and compare it with what was sent.
    Recheck {
        /// Data directory of the run, such as cohort-data/<name of the run>.
        data_dir: PathBuf,
    },
    /// Play a run of block mode with virtual workers on a virtual clock.
    Simulate {
        /// The run; without one, a small default run on the built-in dictionary.
        run: Option<PathBuf>,
        /// lockstep, mild, wan-tight, wan-mid, wan-loose, edge-mid, bad-edge, bad-edge-loose, or all.
        #[arg(long, default_value = "all")]
        regime: String,
        /// Virtual workers [default: two for each block].
        #[arg(long, value_parser = clap::value_parser!(u32).range(1..=10_000))]
        workers: Option<u32>,
        /// Rounds, in place of what training.steps comes to.
        #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
        rounds: Option<u64>,
        /// Seed of the run and of all chance, in place of training.seed.
        #[arg(long)]
        seed: Option<u64>,
        /// Let the coordinator learn its deadlines from arrivals, in place of the regime's fixed one.
        #[arg(long)]
        adaptive: bool,
        /// Write JSON in place of the table.
        #[arg(long)]
        json: bool,
    },
    /// Ask the questions of the paper's tables at small scale; writes a page and a plot.
    Reproduce {
        experiment: reproduce::Experiment,
        /// Seeds, over which means and errors are taken.
        #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=1000))]
        seeds: u64,
        #[arg(long, default_value = "docs/reproduction")]
        out: PathBuf,
        /// Only show that everything works, in seconds.
        #[arg(long)]
        quick: bool,
    },
    /// Continue a text with a checkpoint.
    Generate {
        /// Folder of a checkpoint, such as cohort-data/<run>/checkpoints/step-000100.
        checkpoint: PathBuf,
        #[arg(long, default_value = "\n")]
        prompt: String,
        /// Tokens to add.
        #[arg(long, default_value_t = 200)]
        tokens: u32,
        /// 0 always takes the likeliest token.
        #[arg(long, default_value_t = 0.8)]
        temperature: f64,
        /// Choose among this many likeliest tokens; 0 is all.
        #[arg(long, default_value_t = 0)]
        top_k: usize,
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
}

#[derive(Clone, Copy, ValueEnum)]
enum BackendChoice {
    Cpu,
    Webgpu,
}

impl From<BackendChoice> for Backend {
    fn from(choice: BackendChoice) -> Self {
        match choice {
            BackendChoice::Cpu => Backend::Cpu,
            BackendChoice::Webgpu => Backend::WebGpu,
        }
    }
}

pub fn run() -> anyhow::Result<()> {
    match Cli::parse().command {
        Command::Serve { run, listen, data_dir, resume, start_with, exit_when_over, log_json } => {
            log(log_json);
            let config = serve::load(run.as_deref())?;
            let options = serve::Options { listen, data_dir, numbered: run.is_none(), resume, start_with };
            tokio::runtime::Runtime::new()?.block_on(serve_until_end(config, options, exit_when_over))
        }
        Command::Work { url, backend, name, memory, log_json } => {
            log(log_json);
            native_worker::work(native_worker::Options {
                url,
                backend: backend.map(Into::into),
                name,
                memory_bytes: memory.map(|mb| mb.saturating_mul(1_000_000)),
            })
        }
        Command::Validate { run, devices } => {
            let config = serve::load(Some(&run))?;
            println!("{}: no fault found in run {}", run.display(), config.name);
            if let Some(devices) = devices {
                let devices = predict::devices::load(&devices)?;
                let spec = config.run_spec(config.data.tokenizer.usual_vocabulary());
                print!("{}", predict::report(&spec, config.pipeline.stages, &devices));
            }
            Ok(())
        }
        Command::Evaluate { data_dir, batches, draws, references } => {
            let options = evaluate::Options { batches, draws, references };
            let report = evaluate::evaluate(&data_dir, options, |words| eprintln!("{words}"))?;
            print!("{report}");
            Ok(())
        }
        Command::Recheck { data_dir } => recheck_in_words(&data_dir),
        Command::Simulate { run, regime, workers, rounds, seed, adaptive, json } => {
            let run = run.as_deref();
            let options =
                simulate::report::Options { run, regime: &regime, workers, rounds, seed, adaptive, json };
            simulate::report::simulate(&options, &mut std::io::stdout().lock())
        }
        Command::Reproduce { experiment, seeds, out, quick } => {
            let options = reproduce::Options { seeds, out, quick };
            println!("{}", reproduce::reproduce(experiment, &options)?.display());
            Ok(())
        }
        Command::Generate { checkpoint, prompt, tokens, temperature, top_k, seed } => {
            let sampling = engine::generate::Sampling { temperature, top_k, seed };
            let mut out = std::io::stdout().lock();
            generate::generate(&checkpoint, &prompt, tokens, sampling, &mut out)?;
            Ok(writeln!(out)?)
        }
    }
}

fn recheck_in_words(data_dir: &std::path::Path) -> anyhow::Result<()> {
    let findings = recheck::recheck(data_dir)?;
    if findings.is_empty() {
        bail!("{}: no round is kept whose work could be done again; see snapshots.keep", data_dir.display());
    }
    for finding in &findings {
        let recheck::Finding { round, worker, block, outcome, tolerance } = finding;
        let words = match outcome {
            Ok(distance) if distance <= tolerance => format!("as sent, off by {distance:.2e} of its length"),
            Ok(distance) => {
                format!("NOT as sent: off by {distance:.2e} of its length, {tolerance} is allowed")
            }
            Err(error) => format!("cannot be done again: {error}"),
        };
        println!("round {round}, block {block}, {worker}: {words}");
    }
    let off = findings.iter().filter(|finding| finding.is_off()).count();
    anyhow::ensure!(off == 0, "{off} of {} pieces of work are not what was asked for", findings.len());
    Ok(())
}

/// To stderr, so that stdout is for what was asked.
fn log(json: bool) {
    let filter = EnvFilter::try_from_env("COHORT_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    if json { builder.json().init() } else { builder.init() }
}

async fn serve_until_end(
    config: coordinator::config::RunConfig,
    options: serve::Options,
    exit_when_over: bool,
) -> anyhow::Result<()> {
    let mut serving = serve::start(config, options).await?;
    let link = format!("http://{}", serving.address);
    println!("listening on {link}");
    println!("volunteers: {link}/");
    println!("organizer: {link}/organizer#token={}", serving.organizer_token);
    std::io::stdout().flush()?;
    tracing::info!("the run is kept in {}", serving.data_dir.display());
    let ending = tokio::select! {
        ending = &mut serving.over => ending.context("the run ended without saying how")?,
        result = &mut serving.failed => return result?,
        signal = tokio::signal::ctrl_c() => return Ok(signal?),
    };
    match (ending.phase, &ending.checkpoint) {
        (Phase::Finished, Some(checkpoint)) => println!("finished: {}", checkpoint.display()),
        (_, Some(checkpoint)) => println!("stopped; the last checkpoint is {}", checkpoint.display()),
        (_, None) => println!("stopped before the first checkpoint"),
    }
    if exit_when_over {
        // The workers have been told; those that do not hear it must not keep the program.
        let _ = tokio::time::timeout(std::time::Duration::from_secs(5), serving.deserted()).await;
        if ending.phase != Phase::Finished {
            bail!("the run was stopped before its last step");
        }
        return Ok(());
    }
    // The pages stay up: people want to see how it went.
    tokio::select! {
        result = &mut serving.failed => result?,
        signal = tokio::signal::ctrl_c() => Ok(signal?),
    }
}
