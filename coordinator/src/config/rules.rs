//! The fields of `run.toml`: names, defaults, limits, and what must fit together.

use std::path::PathBuf;

use protocol::{
    limits::LOSSES,
    spec::Moments,
    tensor::{Encoding, MAX_ELEMENTS},
};
use toml::de::DeValue;

use super::{
    block_rules,
    read::{Known, Reading},
    types::*,
};
use crate::{
    data::{corpus::Source, tokenizer::TokenizerKind},
    plan::Stages,
};

const KNOWN: [Known; 9] = [
    ("", &["name", "mode"]),
    ("model", &["preset", "layers", "width", "heads", "context", "tie_embeddings"]),
    ("data", &["source", "tokenizer", "tokenizer_files", "validation_fraction"]),
    (
        "training",
        &[
            "steps",
            "micro_batches",
            "sequences",
            "context",
            "seed",
            "learning_rate",
            "warmup_steps",
            "final_learning_rate",
            "beta1",
            "beta2",
            "epsilon",
            "weight_decay",
            "clip_norm",
            "validate_every",
            "validation_batches",
        ],
    ),
    ("pipeline", &["stages", "wire", "recompute", "start_with"]),
    ("blocks", &["count", "sigma_min", "sigma_max", "p_mean", "p_std", "gamma"]),
    (
        "rounds",
        &[
            "local_steps",
            "start_with",
            "delta",
            "top_k_per_mille",
            "aggregator",
            "trim",
            "clip_radius",
            "clip_iterations",
            "outer",
            "outer_learning_rate",
            "outer_momentum",
            "deadline",
            "target_participation",
            "least_participation",
            "longest_seconds",
            "moments",
            "norm_limit",
            "evaluate_by",
            "draws",
        ],
    ),
    ("snapshots", &["every", "keep", "moments"]),
    ("session", &["heartbeat_seconds", "lease_seconds", "step_deadline_seconds", "max_workers"]),
];

/// Steps beyond which a number is surely a slip.
const MOST_STEPS: u64 = 1_000_000_000;

/// Read all sections and check them against each other.
pub fn config(reading: &mut Reading<'_>) -> RunConfig {
    reading.check_names(&KNOWN);
    let name = reading.text("name", "webster-nano".to_owned(), |text| {
        let good = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        if (1..=64).contains(&text.len()) && text.chars().all(good) && !text.starts_with('.') {
            Ok(text.to_owned())
        } else {
            Err("must be 1 to 64 letters, digits, `_`, `-` and `.`, and not begin with `.`".to_owned())
        }
    });
    let mode = reading.choice(
        "mode",
        ModeName::Pipeline,
        &[("pipeline", ModeName::Pipeline), ("block", ModeName::Block)],
    );
    let model = model(reading);
    let data = data(reading);
    let training = training(reading, &model);
    let session = session(reading);
    let pipeline = pipeline(reading, &model, &session, mode);
    let blocks = block_rules::blocks(reading, &model, mode);
    let rounds = block_rules::rounds(reading, &blocks, &session, mode);
    let snapshots = snapshots(reading);
    check_mode(reading, mode);
    check_sizes(reading, &model, &training);
    if reading.sound(&["data.validation_fraction", "training.validate_every"])
        && data.validation_fraction == 0.0
        && training.validate_every > 0
    {
        reading.fault_between(
            &["data.validation_fraction", "training.validate_every"],
            "nothing is held out to validate on; give data.validation_fraction = 0.1, or set \
             training.validate_every = 0 for no validation"
                .to_owned(),
        );
    }
    RunConfig { name, mode, model, data, training, pipeline, blocks, rounds, snapshots, session }
}

fn model(reading: &mut Reading<'_>) -> ModelConfig {
    let options = PRESETS.map(|p| (p.name, p));
    let preset = reading.choice("model.preset", PRESETS[0], &options);
    let model = ModelConfig {
        layers: reading.count("model.layers", preset.layers, 1..=512),
        width: reading.count("model.width", preset.width, 1..=16_384),
        heads: reading.count("model.heads", preset.heads, 1..=512),
        context: reading.count("model.context", preset.context, 1..=32_768),
        tie_embeddings: reading.boolean("model.tie_embeddings", false),
    };
    let fields = ["model.heads", "model.width", "model.preset"];
    if reading.sound(&fields) && !model.width.is_multiple_of(model.heads) {
        let ModelConfig { width, heads, .. } = model;
        let fit: Vec<String> = (1..=width)
            .filter(|h| width % h == 0 && (*h).abs_diff(heads) <= heads.max(8))
            .map(|h| h.to_string())
            .collect();
        let message = format!(
            "model.width {width} cannot be divided among {heads} heads; set model.heads to a divisor of it ({}), or \
             model.width to a multiple of {heads}",
            fit.join(", ")
        );
        reading.fault_between(&fields, message);
    }
    model
}

fn data(reading: &mut Reading<'_>) -> DataConfig {
    let data = DataConfig {
        source: reading.text("data.source", Source::Webster, source),
        tokenizer: reading.choice(
            "data.tokenizer",
            TokenizerKind::Bytes,
            &TokenizerKind::ALL.map(|kind| (kind.name(), kind)),
        ),
        tokenizer_files: reading.text("data.tokenizer_files", None, |text| match text {
            "" => Err("must be the folder of encoder.json and vocab.bpe, or be left out".to_owned()),
            text => Ok(Some(PathBuf::from(text))),
        }),
        validation_fraction: reading.number(
            "data.validation_fraction",
            0.1,
            |x| (0.0..=0.5).contains(&x),
            "from 0 to 0.5: the share of the text that is held out; 0.1 is usual",
        ),
    };
    if data.tokenizer_files.is_some()
        && reading.sound(&["data.tokenizer"])
        && data.tokenizer != TokenizerKind::Gpt2
    {
        let message = format!(
            "the tokenizer \"{}\" has no files; leave the field out, or set data.tokenizer = \"gpt2\"",
            data.tokenizer.name()
        );
        reading.fault("data.tokenizer_files", message);
    }
    data
}

fn source(text: &str) -> Result<Source, String> {
    match text {
        "" => Err("must be the path of a text file or folder, or \"webster\"".to_owned()),
        "webster" => Ok(Source::Webster),
        name if NAMED_SOURCES.contains(&name) => Err(format!(
            "downloading \"{name}\" is not built yet; fetch the text yourself and give its path (\"./{name}\" for one \
             of that name), or use \"webster\""
        )),
        path => Ok(Source::Path(PathBuf::from(path))),
    }
}

fn training(reading: &mut Reading<'_>, model: &ModelConfig) -> TrainingConfig {
    let steps = reading.whole("training.steps", 2000, 1..=MOST_STEPS);
    let positive = |x: f64| x > 0.0;
    let decay = |x: f64| (0.0..1.0).contains(&x);
    let learning_rate = reading.number(
        "training.learning_rate",
        3e-3,
        |x| x > 0.0 && x <= 1.0,
        "above 0 and at most 1; 3e-3 is usual",
    );
    let training = TrainingConfig {
        steps,
        micro_batches: reading.take("training.micro_batches", Some(4), |value| {
            let wrong = || format!("must be \"auto\" or a whole number from 1 to {LOSSES}");
            match value {
                DeValue::String(s) if s == "auto" => Ok(None),
                DeValue::Integer(i) => match u32::from_str_radix(i.as_str(), i.radix()) {
                    Ok(count) if (1..=LOSSES as u32).contains(&count) => Ok(Some(count)),
                    _ => Err(wrong()),
                },
                _ => Err(wrong()),
            }
        }),
        sequences: reading.count("training.sequences", 4, 1..=4096),
        context: reading.count("training.context", model.context, 1..=32_768),
        // TOML's whole numbers end there.
        seed: reading.whole("training.seed", 1, 0..=i64::MAX as u64),
        learning_rate,
        warmup_steps: reading.whole("training.warmup_steps", (steps / 10).min(100), 0..=MOST_STEPS),
        final_learning_rate: reading.number(
            "training.final_learning_rate",
            learning_rate / 10.0,
            |x| x >= 0.0,
            "of at least 0; a tenth of training.learning_rate is usual",
        ),
        beta1: reading.number("training.beta1", 0.9, decay, "from 0 to below 1; 0.9 is usual"),
        beta2: reading.number("training.beta2", 0.95, decay, "from 0 to below 1; 0.95 is usual"),
        epsilon: reading.number("training.epsilon", 1e-8, positive, "above 0; 1e-8 is usual"),
        weight_decay: reading.number(
            "training.weight_decay",
            0.1,
            |x| x >= 0.0,
            "of at least 0; 0.1 is usual",
        ),
        clip_norm: reading.number("training.clip_norm", 1.0, positive, "above 0; 1.0 is usual"),
        validate_every: reading.whole("training.validate_every", 20, 0..=MOST_STEPS),
        validation_batches: reading.count("training.validation_batches", 4, 1..=4096),
    };
    let fields = ["training.warmup_steps", "training.steps"];
    if reading.sound(&fields) && training.warmup_steps > steps {
        let message = format!(
            "the warm-up of {} steps is longer than the run of {steps}; lower training.warmup_steps or raise \
             training.steps",
            training.warmup_steps
        );
        reading.fault_between(&fields, message);
    }
    let fields = ["training.final_learning_rate", "training.learning_rate"];
    if reading.sound(&fields) && training.final_learning_rate > learning_rate {
        let message = format!(
            "the rate would rise to {} at the end; give at most training.learning_rate, which is {learning_rate}",
            training.final_learning_rate
        );
        reading.fault_between(&fields, message);
    }
    training
}

fn session(reading: &mut Reading<'_>) -> SessionConfig {
    let seconds = |x: f64| (0.01..=3600.0).contains(&x);
    let session = SessionConfig {
        heartbeat_seconds: reading.number(
            "session.heartbeat_seconds",
            5.0,
            seconds,
            "from 0.01 to 3600; 5 is usual",
        ),
        lease_seconds: reading.number(
            "session.lease_seconds",
            30.0,
            seconds,
            "from 0.01 to 3600; 30 is usual",
        ),
        step_deadline_seconds: reading.number(
            "session.step_deadline_seconds",
            7200.0,
            |x| (0.01..=86_400.0).contains(&x),
            "from 0.01 to 86400; 7200 is usual, less where a step takes seconds",
        ),
        max_workers: reading.count("session.max_workers", 64, 1..=10_000),
    };
    let fields = ["session.step_deadline_seconds", "session.lease_seconds"];
    if reading.sound(&fields) && session.lease_seconds >= session.step_deadline_seconds {
        let message = format!(
            "a step would be given up after {} s, before a lease of {} s ends; make it several leases long",
            session.step_deadline_seconds, session.lease_seconds
        );
        reading.fault_between(&fields, message);
    }
    let fields = ["session.lease_seconds", "session.heartbeat_seconds"];
    if reading.sound(&fields) && session.heartbeat_seconds >= session.lease_seconds {
        let message = format!(
            "a lease of {} s ends before the next heartbeat, which comes every {} s; make the lease several heartbeats \
             long",
            session.lease_seconds, session.heartbeat_seconds
        );
        reading.fault_between(&fields, message);
    }
    session
}

fn pipeline(
    reading: &mut Reading<'_>,
    model: &ModelConfig,
    session: &SessionConfig,
    mode: ModeName,
) -> PipelineConfig {
    let stages = reading.take("pipeline.stages", Stages::Auto, |value| match value {
        DeValue::String(s) if s == "auto" => Ok(Stages::Auto),
        DeValue::Integer(i) => match u32::from_str_radix(i.as_str(), i.radix()) {
            Ok(count) if count > 0 => Ok(Stages::Exactly(count)),
            _ => Err("must be \"auto\" or a whole number of at least 1".to_owned()),
        },
        _ => Err("must be \"auto\" or a whole number of at least 1".to_owned()),
    });
    let at_least = match stages {
        Stages::Auto => 1,
        Stages::Exactly(count) => count,
    };
    let pipeline = PipelineConfig {
        stages,
        wire: reading.choice(
            "pipeline.wire",
            Encoding::F32,
            &[("f32", Encoding::F32), ("f16", Encoding::F16), ("int8", Encoding::Int8)],
        ),
        recompute: reading.boolean("pipeline.recompute", false),
        start_with: reading.count("pipeline.start_with", at_least, 1..=1000),
    };
    if mode == ModeName::Block {
        return pipeline;
    }
    if reading.sound(&["pipeline.stages", "model.layers"]) && at_least > model.layers {
        let message = format!(
            "{at_least} stages need at least one layer each, but the model has {}; lower pipeline.stages or raise \
             model.layers",
            model.layers
        );
        reading.fault_between(&["pipeline.stages", "model.layers"], message);
    }
    if reading.sound(&["pipeline.start_with", "pipeline.stages"]) && pipeline.start_with < at_least {
        let message =
            format!("{at_least} stages need as many workers; give at least that, or lower pipeline.stages");
        reading.fault("pipeline.start_with", message);
    }
    let fields = ["pipeline.start_with", "pipeline.stages", "session.max_workers"];
    if reading.sound(&fields) && pipeline.start_with > session.max_workers {
        let message = format!(
            "the run waits for {} workers but lets in {}; raise session.max_workers, or wait for fewer",
            pipeline.start_with, session.max_workers
        );
        reading.fault_between(&fields, message);
    }
    pipeline
}

fn snapshots(reading: &mut Reading<'_>) -> SnapshotConfig {
    SnapshotConfig {
        every: reading.whole("snapshots.every", 20, 1..=MOST_STEPS),
        keep: reading.count("snapshots.keep", 3, 1..=1000),
        moments: reading.choice(
            "snapshots.moments",
            Moments::Full,
            &[("full", Moments::Full), ("f16", Moments::F16), ("none", Moments::None)],
        ),
    }
}

/// A field of the other mode would be passed over in silence, and its author would wonder.
fn check_mode(reading: &mut Reading<'_>, mode: ModeName) {
    let (others, words): (&[&str], &str) = match mode {
        ModeName::Block => {
            (&["pipeline"], "is of pipeline mode; leave it out, or set mode = \"pipeline\" at the top")
        }
        ModeName::Pipeline => {
            (&["blocks", "rounds"], "is of block mode; leave it out, or set mode = \"block\" at the top")
        }
    };
    for (section, fields) in KNOWN.iter().filter(|(section, _)| others.contains(section)) {
        for field in *fields {
            let path = format!("{section}.{field}");
            if reading.is_written(&path) {
                reading.fault(&path, words.to_owned());
            }
        }
    }
}

/// Sequences must fit the position table, and tensors between stages a frame.
fn check_sizes(reading: &mut Reading<'_>, model: &ModelConfig, training: &TrainingConfig) {
    let fields = ["training.context", "model.context", "model.preset"];
    if reading.sound(&fields) && training.context > model.context {
        let message = format!(
            "sequences of {} tokens are longer than the model's {} positions; lower training.context or raise \
             model.context",
            training.context, model.context
        );
        reading.fault_between(&fields, message);
    }
    let fields = ["training.sequences", "training.context", "model.width", "model.context", "model.preset"];
    let values: u64 = [training.sequences, training.context, model.width].map(u64::from).iter().product();
    if reading.sound(&fields) && values > MAX_ELEMENTS {
        let message = format!(
            "one micro-batch between stages would have {values} values, and a frame takes {MAX_ELEMENTS}; lower \
             training.sequences and raise training.micro_batches"
        );
        reading.fault_between(&fields, message);
    }
}
