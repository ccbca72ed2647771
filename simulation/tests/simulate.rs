//! The simulator: the same for a seed, regimes in order, deadlines that adapt, hostile workers turned away.

#![allow(clippy::unwrap_used)]

use coordinator::{
    config::RunConfig,
    data::Dataset,
    reproduce::{self, Experiment},
    run::event::Record,
    simulate::{self, Behaviour, Outcome, Plan, Regime, Speed},
};

/// Two tiny blocks over so many rounds of two steps.
fn config(rounds: u64, more: &str) -> RunConfig {
    let steps = 2 * rounds;
    let toml = format!(
        "mode = \"block\"\n[model]\nlayers = 2\nwidth = 8\nheads = 1\ncontext = 8\n\
         [training]\nsteps = {steps}\nsequences = 2\nwarmup_steps = 0\nvalidate_every = {steps}\nvalidation_batches = 1\n\
         [blocks]\ncount = 2\n[rounds]\nlocal_steps = 2\ndraws = 2\n{more}"
    );
    RunConfig::parse(&toml, "run.toml").unwrap()
}

/// A text that takes no time to tokenise.
struct Text {
    dataset: Dataset,
    _folder: tempfile::TempDir,
}

fn text() -> Text {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("text");
    std::fs::write(&path, "the quick brown fox jumps over the lazy dog. ".repeat(200)).unwrap();
    let source = coordinator::data::corpus::Source::Path(path);
    let kind = coordinator::data::tokenizer::TokenizerKind::Bytes;
    let dataset = Dataset::prepare(&source, kind, None, 0.1, folder.path()).unwrap();
    Text { dataset, _folder: folder }
}

fn go(config: &RunConfig, plan: &Plan) -> Outcome {
    simulate::run(config, &text().dataset, plan, |_| {}).unwrap()
}

fn named(name: &str) -> Regime {
    Regime::named(name).unwrap()
}

#[test]
fn a_seed_gives_the_same_run_bit_for_bit_and_another_seed_another() {
    let config = config(6, "");
    let plan = Plan::new(named("wan-mid"), 4, 7);
    let first = go(&config, &plan);
    assert_eq!(first, go(&config, &plan));
    assert!(first.scores.as_ref().unwrap().is_finite());
    let other = go(&config, &Plan { seed: 8, ..plan });
    assert_ne!(first.state, other.state);
    assert_ne!(first.seconds, other.seconds);
}

#[test]
fn participation_falls_with_the_regime() {
    let config = config(12, "");
    let participation = |name| {
        let of = |seed| go(&config, &Plan::new(named(name), 6, seed)).participation;
        (1..=3).map(of).sum::<f64>() / 3.0
    };
    let order = ["lockstep", "mild", "wan-loose", "wan-mid", "wan-tight"].map(participation);
    assert_eq!(order[0], 1.0);
    assert!(order.windows(2).all(|pair| pair[0] >= pair[1]), "{order:?}");
}

#[test]
fn adaptive_deadlines_bring_in_whom_a_tight_one_misses() {
    let config = config(30, "");
    let fixed = Plan::new(named("wan-tight"), 6, 1);
    let adaptive = Plan { adaptive: true, ..fixed.clone() };
    let (fixed, adaptive) = (go(&config, &fixed), go(&config, &adaptive));
    assert!(fixed.participation < 0.86, "{}", fixed.participation);
    assert!(adaptive.participation >= 0.86, "{}", adaptive.participation);
    // A mute worker now and then does not make everybody wait ever longer.
    assert!(adaptive.round_seconds < 10.0 * fixed.round_seconds, "{}", adaptive.round_seconds);
}

#[test]
fn rounds_in_which_nobody_answers_keep_the_weights() {
    let config = config(3, "");
    // Half of those away disconnect; with few rounds some seed has all of them mute.
    let absent = Regime { dropout: 1.0, ..named("mild") };
    let outcome = simulate::run(&config, &text().dataset, &Plan::new(absent, 2, 3), |_| {});
    let present = go(&config, &Plan::new(Regime { dropout: 0.0, ..absent }, 2, 3));
    let outcome = outcome.unwrap();
    assert_eq!(outcome.participation, 0.0);
    let states: std::collections::BTreeSet<&String> = outcome.records.iter().filter_map(state).collect();
    assert_eq!(states.len(), 1, "the weights stay as they were");
    assert_ne!(outcome.state, present.state);
}

fn state(record: &Record) -> Option<&String> {
    match record {
        Record::RoundClosed { state, .. } => Some(state),
        _ => None,
    }
}

#[test]
fn zeros_copies_and_replays_are_refused_by_name() {
    let config = config(4, "");
    for (behaviour, reason) in [
        (Behaviour::Zeros, "delta_empty"),
        (Behaviour::Copy, "delta_copy"),
        (Behaviour::Replay, "delta_copy"),
    ] {
        let plan = Plan { hostile: vec![behaviour], ..Plan::new(named("lockstep"), 4, 1) };
        let outcome = go(&config, &plan);
        let refused: Vec<&String> = outcome.refusals.keys().collect();
        assert_eq!(refused, [reason], "{behaviour:?}");
        assert!(outcome.participation < 1.0);
        let unchecked = go(&config, &Plan { checks: false, ..plan });
        assert_eq!(unchecked.participation, 1.0, "{behaviour:?} without checks");
    }
}

/// A block that all workers share, long enough to have learnt something.
fn shared(aggregator: &str) -> RunConfig {
    let toml = format!(
        "mode = \"block\"\n[model]\nlayers = 1\nwidth = 16\nheads = 2\ncontext = 16\n\
         [training]\nsteps = 60\nsequences = 4\nlearning_rate = 1e-2\nwarmup_steps = 0\nvalidate_every = 60\n\
         validation_batches = 2\n[blocks]\ncount = 1\n[rounds]\nlocal_steps = 5\ndraws = 2\ntrim = 2\n\
         aggregator = \"{aggregator}\"\n"
    );
    RunConfig::parse(&toml, "run.toml").unwrap()
}

#[test]
fn one_hostile_of_five_and_two_of_seven_cost_little_under_a_robust_aggregator_or_under_the_checks() {
    let score = |aggregator, workers, hostile: &[Behaviour], checks| {
        let plan = Plan { hostile: hostile.to_vec(), checks, ..Plan::new(named("lockstep"), workers, 1) };
        go(&shared(aggregator), &plan).scores.map_or(f64::INFINITY, |scores| scores.one_draw)
    };
    for (workers, count) in [(5, 1), (7, 2)] {
        let honest = score("mean", workers, &[], true);
        for behaviour in [Behaviour::SignFlip(10.0), Behaviour::Noise(10.0), Behaviour::Scale(100.0)] {
            let hostile = vec![behaviour; count];
            for aggregator in ["median", "trimmed_mean"] {
                let found = score(aggregator, workers, &hostile, false);
                assert!(
                    found < honest + 0.4,
                    "{count} of {workers}, {behaviour:?}, {aggregator}: {found}, {honest}"
                );
            }
            let checked = score("mean", workers, &hostile, true);
            assert!(
                checked < honest + 0.4,
                "{count} of {workers}, {behaviour:?}, checks: {checked}, {honest}"
            );
        }
        // Without either, one that turns its delta around ten times as long takes the model along.
        let broken = score("mean", workers, &vec![Behaviour::SignFlip(10.0); count], false);
        assert!(!broken.is_finite() || broken > honest + 1.0, "{broken} beside {honest}");
    }
}

#[test]
fn sparse_deltas_keep_what_they_do_not_send() {
    let dense = go(&config(3, ""), &Plan::new(named("lockstep"), 2, 1));
    let more = "delta = \"topk\"\ntop_k_per_mille = 50\n";
    let sparse = go(&config(3, more), &Plan::new(named("wan-tight"), 2, 1));
    assert!(sparse.bytes_up < 0.3 * dense.bytes_up, "{} against {}", sparse.bytes_up, dense.bytes_up);
    assert!(sparse.scores.unwrap().is_finite());
}

#[test]
fn a_prediction_is_what_the_same_run_comes_to() {
    let config = config(4, "deadline = 100\n");
    let speed = Speed { step_seconds: 0.5, latency: 0.1, down: 1e5, up: 1e5 };
    let slow = Speed { step_seconds: 1.0, ..speed };
    let text = text();
    let prediction = simulate::predict(&config, &text.dataset, &[speed, slow]).unwrap();
    assert_eq!(prediction.participation, 1.0);
    // Two steps of a second, and eight ways, and the bytes.
    let bytes = (prediction.bytes_down + prediction.bytes_up) / 1e5;
    let expected = 2.0 + 0.8 + bytes;
    assert!((prediction.round_seconds - expected).abs() < 0.01, "{prediction:?}, not {expected}");
    let real = go(&config, &Plan::new(Regime::constant(slow, 10.0), 2, 1));
    assert!((real.bytes_up - prediction.bytes_up).abs() < 1.0, "{real:?}");
}

#[test]
fn an_experiment_writes_its_page_and_plot() {
    let out = tempfile::tempdir().unwrap();
    let options = reproduce::Options { seeds: 2, out: out.path().into(), quick: true };
    let page = reproduce::reproduce(Experiment::Shared, &options).unwrap();
    let text = std::fs::read_to_string(page).unwrap();
    for part in
        ["cohort reproduce shared --seeds 2 --quick", "**Expected.**", "**Seen.**", "±", "(shared.svg)"]
    {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    assert!(std::fs::read_to_string(out.path().join("shared.svg")).unwrap().starts_with("<svg"));
}
