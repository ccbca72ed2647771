//! `cohort reproduce` at its smallest, and `cohort simulate` from a run.toml and a real text.
#![allow(clippy::unwrap_used)]

use coordinator::{
    commands::{
        reproduce::{self, Experiment, Options},
        simulate,
    },
    config::RunConfig,
    data::{Dataset, corpus::Source, tokenizer::TokenizerKind},
};
use simulation::{Plan, Regime, Speed};

#[test]
fn an_experiment_writes_its_page_and_plot() {
    let out = tempfile::tempdir().unwrap();
    let options = Options { seeds: 2, out: out.path().into(), quick: true };
    let page = reproduce::reproduce(Experiment::Shared, &options).unwrap();
    let text = std::fs::read_to_string(page).unwrap();
    for part in [
        "cohort reproduce shared --seeds 2 --quick",
        "**Expected.**",
        "**Seen.**",
        "±",
        "(shared.svg)",
        "8 draws",
    ] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    assert!(std::fs::read_to_string(out.path().join("shared.svg")).unwrap().starts_with("<svg"));
}

#[test]
fn a_run_of_a_file_is_simulated_and_predicted_with_its_own_data() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("text");
    std::fs::write(&path, "the quick brown fox jumps over the lazy dog. ".repeat(200)).unwrap();
    let dataset =
        Dataset::prepare(&Source::Path(path), TokenizerKind::Bytes.into(), 0.1, folder.path(), None).unwrap();
    let toml = "mode = \"block\"\n[model]\nlayers = 2\nwidth = 8\nheads = 1\ncontext = 8\n\
                [training]\nsteps = 8\nsequences = 2\nwarmup_steps = 0\nvalidate_every = 8\nvalidation_batches = 1\n\
                [blocks]\ncount = 2\n[rounds]\nlocal_steps = 2\ndraws = 2\ndeadline = 100\n";
    let config = RunConfig::parse(toml, "run.toml").unwrap();
    let speed = Speed { step_seconds: 0.5, latency: 0.1, down: 1e5, up: 1e5 };
    let mut rounds = vec![];
    let plan = Plan::new(Regime::constant(speed, 10.0), 2, 1);
    let outcome = simulate::run(&config, &dataset, &plan, |round| rounds.push(round)).unwrap();
    assert_eq!(rounds, [1, 2, 3, 4]);
    assert_eq!(outcome.participation, 1.0);
    let prediction = simulate::predict(&config, &dataset, &[speed, speed]).unwrap();
    assert!((prediction.round_seconds - outcome.round_seconds).abs() < 0.01, "{prediction:?}");
    assert!((prediction.bytes_up - outcome.bytes_up).abs() < 1.0, "{prediction:?}");

    let pipeline = RunConfig::default();
    let words = simulate::run(&pipeline, &dataset, &plan, |_| {}).unwrap_err().to_string();
    assert!(words.contains("set mode = \"block\""), "{words}");
}
