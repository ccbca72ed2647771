//! The command line: one file a command.

mod evaluate;
mod export;
mod generate;
mod import;
mod progress;
mod recheck;
mod reference;
pub mod reproduce;
pub mod serve;
pub mod simulate;
mod validate;
mod work;

use clap::{Parser, Subcommand};
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
    Serve(serve::Arguments),
    /// Take part in a run as a native worker.
    Work(work::Arguments),
    /// Check a run.toml and name every fault in it; predict what it comes to on a list of devices.
    Validate(validate::Arguments),
    /// Measure a run's newest checkpoint on held-out text; in block mode with all controls.
    Evaluate(evaluate::Arguments),
    /// Block mode: do accepted work again from the published weights, and compare it with what was sent.
    Recheck(recheck::Arguments),
    /// Play a run of block mode with virtual workers on a virtual clock.
    Simulate(simulate::Arguments),
    /// Ask the questions of the paper's tables at small scale; writes a page and a plot.
    Reproduce(reproduce::Arguments),
    /// Continue a text with a checkpoint.
    Generate(generate::Arguments),
    /// Make a checkpoint of a GPT-2 that transformers has saved.
    Import(import::Arguments),
    /// Write a checkpoint for transformers or llama.cpp.
    Export(export::Arguments),
}

/// Does what the command line says.
///
/// # Errors
/// In words, for people.
pub fn run() -> anyhow::Result<()> {
    match Cli::parse().command {
        Command::Serve(arguments) => serve::command(&arguments),
        Command::Work(arguments) => work::command(arguments),
        Command::Validate(arguments) => validate::command(&arguments),
        Command::Evaluate(arguments) => evaluate::command(&arguments),
        Command::Recheck(arguments) => recheck::command(&arguments),
        Command::Simulate(arguments) => simulate::command(&arguments),
        Command::Reproduce(arguments) => reproduce::command(arguments),
        Command::Generate(arguments) => generate::command(&arguments),
        Command::Import(arguments) => import::command(&arguments),
        Command::Export(arguments) => export::command(&arguments),
    }
}

/// To stderr, so that stdout is for what was asked.
fn log(json: bool) {
    let filter = EnvFilter::try_from_env("COHORT_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    if json { builder.json().init() } else { builder.init() }
}
