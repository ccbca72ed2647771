//! `cargo xtask setup | run | test | bench | fuzz | soak`: everything that is done to this workspace, by name.

use std::{ffi::OsString, process::ExitCode};

use clap::{Parser, Subcommand, ValueEnum};
use xtask::{bench, fuzz, run, setup, soak, test, workspace::Workspace};

/// Sets up, runs, tests and measures Cohort.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Install the tools that the other commands need.
    Setup,
    /// Build everything and start a coordinator; it prints the links.
    Run {
        /// Also open this many headless Chromium tabs that join the run at once.
        #[arg(long, value_name = "TABS")]
        demo: Option<u32>,
        /// Arguments for `cohort serve`, such as a run.toml.
        #[arg(last = true, value_name = "SERVE ARGUMENTS")]
        serve: Vec<OsString>,
    },
    /// Everything that CI checks: formatting, lints, the pages, all tests.
    Test,
    /// Measure, print a table and write JSON to target/bench.
    Bench {
        /// What to measure.
        what: Bench,
    },
    /// Look for inputs that break what reads them, with libFuzzer; needs a C++ compiler.
    Fuzz {
        /// One target; all of them without.
        #[arg(value_parser = fuzz::TARGETS)]
        target: Option<String>,
        /// Minutes for each target.
        #[arg(long, default_value_t = 3.0)]
        minutes: f64,
    },
    /// Let a coordinator work while workers and strangers come and go, and see whether anything grows; on Linux.
    Soak {
        /// Minutes, half of them in each mode.
        #[arg(long, default_value_t = 10.0)]
        minutes: f64,
    },
}

#[derive(Clone, Copy, ValueEnum)]
enum Bench {
    /// Tokens per second of one full training step, natively and in Chromium.
    Engine,
    /// Efficiency of a pipeline of unequal workers over slow links.
    Pipeline,
    /// Speed, added latency and memory of the coordinator's relay.
    Relay,
    /// Tokens a second of text from one process, beside what memory allows.
    Serving,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    match Workspace::find().and_then(|workspace| match cli.command {
        Command::Setup => setup::everything(&workspace),
        Command::Run { demo, serve } => run::run(&workspace, demo, &serve),
        Command::Test => test::test(&workspace),
        Command::Bench { what: Bench::Engine } => bench::engine(&workspace),
        Command::Bench { what: Bench::Pipeline } => bench::pipeline(&workspace),
        Command::Bench { what: Bench::Relay } => bench::relay(&workspace),
        Command::Bench { what: Bench::Serving } => bench::serving(&workspace),
        Command::Fuzz { target, minutes } => fuzz::fuzz(&workspace, target.as_deref(), minutes),
        Command::Soak { minutes } => soak::soak(&workspace, minutes),
    }) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("\nerror: {error:#}");
            ExitCode::FAILURE
        }
    }
}
