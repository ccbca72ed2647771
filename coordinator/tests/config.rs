//! `run.toml`: defaults, faults with line and field, and the way back to text.

use std::{fs, path::Path};

use control::{block::deadline::DeadlinePolicy, pipeline::plan::Stages};
use coordinator::{
    config::{ConfigFault, PRESETS, RunConfig, reference},
    data::{corpus::Source, tokenizer::TokenizerKind},
};
use engine::aggregation::{Aggregator, OuterStep};
use proptest::prelude::*;
use protocol::{
    delta::DeltaEncoding,
    frame::MAX_PAYLOAD,
    tensor::{Encoding, TensorMeta},
};

fn faults(text: &str) -> Vec<ConfigFault> {
    RunConfig::parse(text, "run.toml").expect_err("faulty")
}

#[test]
fn an_empty_file_is_the_default_run() {
    let config = RunConfig::parse("", "run.toml").expect("defaults are fine");
    assert_eq!(config, RunConfig::default());
    assert_eq!(config.name, "webster-nano");
    assert_eq!(config.data.source, Source::Webster);
    assert_eq!(config.data.tokenizer, TokenizerKind::Bytes);
    let spec = config.run_spec(256);
    assert_eq!((spec.model.layers, spec.model.width, spec.model.heads), (3, 48, 3));
    assert_eq!((spec.model.vocabulary, spec.model.positions, spec.context), (256, 64, 64));
    assert!(!spec.model.tie_embeddings);
    assert_eq!((spec.optimizer.beta1, spec.optimizer.beta2, spec.optimizer.clip_norm), (0.9, 0.95, 1.0));
    assert_eq!(spec.wire, Encoding::F32);
}

#[test]
fn every_field_is_read() {
    let text = r#"
name = "my.run_1"
[model]
preset = "micro"
layers = 6
width = 144
heads = 12
context = 100
tie_embeddings = true
[data]
source = "texts/all.txt"
tokenizer = "gpt2"
tokenizer_files = "bpe"
end_of_text = true
validation_fraction = 0.25
[training]
steps = 1_000
micro_batches = 8
sequences = 2
context = 50
seed = 0x2a
learning_rate = 1e-3
warmup_steps = 0
final_learning_rate = 0
beta1 = 0.8
beta2 = 0.99
epsilon = 1e-7
weight_decay = 0
clip_norm = 2
validate_every = 0
validation_batches = 1
[pipeline]
stages = 3
wire = "int8"
recompute = true
start_with = 4
[snapshots]
every = 7
keep = 1
moments = "full"
[session]
heartbeat_seconds = 0.2
lease_seconds = 1
max_workers = 5
"#;
    let config = RunConfig::parse(text, "run.toml").expect("sound");
    assert_eq!(config.name, "my.run_1");
    let spec = config.run_spec(50_257);
    assert_eq!(
        (spec.model.layers, spec.model.width, spec.model.heads, spec.model.positions),
        (6, 144, 12, 100)
    );
    assert!(spec.model.tie_embeddings && spec.recompute);
    assert_eq!((spec.micro_batches, spec.sequences, spec.context), (8, 2, 50));
    assert_eq!((spec.optimizer.beta1, spec.optimizer.beta2), (0.8, 0.99));
    assert_eq!(
        (spec.optimizer.epsilon, spec.optimizer.weight_decay, spec.optimizer.clip_norm),
        (1e-7, 0.0, 2.0)
    );
    assert_eq!(spec.wire, Encoding::Int8);
    assert_eq!(config.data.source, Source::Path("texts/all.txt".into()));
    assert_eq!(config.data.tokenizer_files, Some("bpe".into()));
    assert!(config.data.end_of_text);
    let t = &config.training;
    assert_eq!(
        (t.steps, t.seed, t.warmup_steps, t.validate_every, t.validation_batches),
        (1000, 42, 0, 0, 1)
    );
    assert_eq!((t.learning_rate, t.final_learning_rate), (1e-3, 0.0));
    assert_eq!((config.pipeline.stages, config.pipeline.start_with), (Stages::Exactly(3), 4));
    assert_eq!((config.snapshots.every, config.snapshots.keep), (7, 1));
    assert_eq!(config.session.heartbeat().as_millis(), 200);
    assert_eq!((config.session.lease().as_secs(), config.session.max_workers), (1, 5));
    let again = RunConfig::parse(&config.to_toml().expect("text"), "again").expect("sound");
    assert_eq!(again, config);
}

#[test]
fn defaults_follow_what_is_written() {
    let config = RunConfig::parse(
        "[model]\npreset = \"mini\"\n[training]\nsteps = 30\nlearning_rate = 1e-2\n[pipeline]\nstages = 4\n",
        "run.toml",
    )
    .expect("sound");
    assert_eq!(config.training.context, 256);
    assert_eq!(config.training.warmup_steps, 3);
    assert_eq!(config.training.final_learning_rate, 1e-3);
    assert_eq!(config.pipeline.start_with, 4);
}

#[test]
fn every_preset_is_sound_and_comes_back_from_text() {
    for preset in PRESETS {
        let text = format!("[model]\npreset = \"{}\"\n", preset.name);
        let config = RunConfig::parse(&text, "run.toml").expect("sound");
        assert_eq!(config.model.layers, preset.layers);
        let again = RunConfig::parse(&config.to_toml().expect("text"), "again").expect("sound");
        assert_eq!(again, config);
    }
}

/// A faulty file, and its one fault: line, field, and a part of the words.
const FAULTY: &[(&str, Option<usize>, &str, &str)] = &[
    ("[training]\nlerning_rate = 1e-3", Some(2), "training.lerning_rate", "did you mean `learning_rate`?"),
    ("[training]\nwidth = 48", Some(2), "training.width", "move it to [model]"),
    ("[training]\nname = \"x\"", Some(2), "training.name", "move it to the top of the file"),
    ("steps = 5", Some(1), "steps", "move it to [training]"),
    ("nmae = \"x\"", Some(1), "nmae", "did you mean `name`?"),
    ("[trainning]\nsteps = 5", Some(1), "trainning", "did you mean [training]?"),
    ("[zzz]", Some(1), "zzz", "there are model, data, training"),
    ("[pipeline]\nzzz = 1", Some(2), "pipeline.zzz", "[pipeline] has stages, wire"),
    ("[[model]]\nlayers = 3", Some(1), "model", "write [model]"),
    ("model = 3", Some(1), "model", "must be a table"),
    ("name = \"\"", Some(1), "name", "1 to 64 letters"),
    ("name = \"../up\"", Some(1), "name", "1 to 64 letters"),
    ("name = 5", Some(1), "name", "text in quotes"),
    ("[model]\npreset = \"mirco\"", Some(2), "model.preset", "did you mean \"micro\"?"),
    ("[model]\nlayers = 0", Some(2), "model.layers", "from 1 to"),
    ("[model]\nlayers = 2.5", Some(2), "model.layers", "whole number"),
    ("[model]\nlayers = \"3\"", Some(2), "model.layers", "whole number"),
    ("[model]\n\nwidth = 50", Some(3), "model.width", "cannot be divided among 3 heads"),
    ("[model]\nwidth = 48\nheads = 5", Some(3), "model.heads", "(1, 2, 3, 4, 6, 8, 12)"),
    ("[model]\nheads = 99999999999999999999", Some(2), "model.heads", "from 1 to"),
    ("[model]\ncontext = 0", Some(2), "model.context", "from 1 to"),
    ("[model]\ntie_embeddings = \"yes\"", Some(2), "model.tie_embeddings", "true or false"),
    ("[data]\nsource = \"\"", Some(2), "data.source", "path of a text file"),
    ("[data]\nsource = \"shakespeare\"", Some(2), "data.source", "not built yet"),
    ("[data]\ntokenizer = \"word\"", Some(2), "data.tokenizer", "bytes, characters, gpt2"),
    ("[data]\ntokenizer_files = \"bpe\"", Some(2), "data.tokenizer_files", "set data.tokenizer = \"gpt2\""),
    ("[data]\nend_of_text = true", Some(2), "data.end_of_text", "set data.tokenizer = \"gpt2\""),
    ("[data]\nvalidation_fraction = 1.5", Some(2), "data.validation_fraction", "from 0 to 0.5"),
    ("[data]\nvalidation_fraction = nan", Some(2), "data.validation_fraction", "from 0 to 0.5"),
    ("[data]\nvalidation_fraction = 0", Some(2), "data.validation_fraction", "training.validate_every = 0"),
    ("[training]\nsteps = 0", Some(2), "training.steps", "from 1 to"),
    ("[training]\nsteps = -1", Some(2), "training.steps", "from 1 to"),
    ("[training]\nmicro_batches = 0", Some(2), "training.micro_batches", "from 1 to"),
    ("[training]\nsequences = 0", Some(2), "training.sequences", "from 1 to"),
    ("[training]\ncontext = 0", Some(2), "training.context", "from 1 to"),
    ("[training]\ncontext = 65", Some(2), "training.context", "longer than the model's 64 positions"),
    ("[model]\ncontext = 32\n[training]\ncontext = 64", Some(4), "training.context", "32 positions"),
    ("[training]\nseed = -3", Some(2), "training.seed", "whole number from 0"),
    ("[training]\nlearning_rate = 0", Some(2), "training.learning_rate", "above 0"),
    ("[training]\nlearning_rate = inf", Some(2), "training.learning_rate", "above 0"),
    ("[training]\nwarmup_steps = 3000", Some(2), "training.warmup_steps", "longer than the run of 2000"),
    ("[training]\nfinal_learning_rate = 0.1", Some(2), "training.final_learning_rate", "would rise"),
    ("[training]\nbeta1 = 1", Some(2), "training.beta1", "below 1"),
    ("[training]\nbeta2 = -0.1", Some(2), "training.beta2", "below 1"),
    ("[training]\nepsilon = 0.0", Some(2), "training.epsilon", "above 0"),
    ("[training]\nweight_decay = -1", Some(2), "training.weight_decay", "from 0 to 1000000"),
    ("[training]\nepsilon = 2", Some(2), "training.epsilon", "at most 1"),
    ("[training]\nclip_norm = 0", Some(2), "training.clip_norm", "above 0"),
    ("[training]\nvalidation_batches = 0", Some(2), "training.validation_batches", "from 1 to"),
    (
        "[model]\npreset = \"gpt2\"\n[training]\nsequences = 64",
        Some(4),
        "training.sequences",
        "lower training.sequences and raise training.micro_batches",
    ),
    ("[pipeline]\nstages = 0", Some(2), "pipeline.stages", "\"auto\" or a whole number"),
    ("[pipeline]\nstages = \"all\"", Some(2), "pipeline.stages", "\"auto\" or a whole number"),
    ("[pipeline]\nstages = 4", Some(2), "pipeline.stages", "the model has 3"),
    ("[model]\nlayers = 2\n[pipeline]\nstages = 3", Some(4), "pipeline.stages", "the model has 2"),
    ("[pipeline]\nwire = \"fp32\"", Some(2), "pipeline.wire", "did you mean \"f32\"?"),
    ("[pipeline]\nwire = \"u32\"", Some(2), "pipeline.wire", "f32"),
    ("[pipeline]\nrecompute = 1", Some(2), "pipeline.recompute", "true or false"),
    ("[pipeline]\nstart_with = 0", Some(2), "pipeline.start_with", "from 1 to"),
    (
        "[pipeline]\nstages = 2\nstart_with = 1",
        Some(3),
        "pipeline.start_with",
        "2 stages need as many workers",
    ),
    ("[pipeline]\nstart_with = 100", Some(2), "pipeline.start_with", "raise session.max_workers"),
    ("[session]\nmax_workers = 0", Some(2), "session.max_workers", "from 1 to"),
    ("[snapshots]\nevery = 0", Some(2), "snapshots.every", "from 1 to"),
    ("[snapshots]\nkeep = 0", Some(2), "snapshots.keep", "from 1 to"),
    ("[snapshots]\nmoments = \"half\"", Some(2), "snapshots.moments", "full, f16, none"),
    ("[session]\nheartbeat_seconds = 0", Some(2), "session.heartbeat_seconds", "from 0.01"),
    (
        "[session]\nheartbeat_seconds = 30",
        Some(2),
        "session.heartbeat_seconds",
        "ends before the next heartbeat",
    ),
    ("[session]\nheartbeat_seconds = 9\nlease_seconds = 9", Some(3), "session.lease_seconds", "every 9 s"),
    ("name = \"a\"\nname = \"b\"", Some(2), "", "is not TOML"),
    ("[model\nlayers = 3", Some(1), "", "is not TOML"),
];

#[test]
fn each_fault_has_its_line_field_and_words() {
    for (text, line, field, words) in FAULTY {
        let found = faults(text);
        assert_eq!(found.len(), 1, "{text:?}: {found:#?}");
        assert_eq!((found[0].line, found[0].field.as_str()), (*line, *field), "{text:?}: {}", found[0]);
        assert!(found[0].message.contains(words), "{text:?}: {}", found[0]);
    }
}

#[test]
fn all_faults_come_at_once_in_the_order_of_the_lines() {
    let text = "[model]\nwidth = 50\nheads = 4\nlayer = 2\n[training]\nsteps = 0\nlerning_rate = 1\n[pipeline]\nwire = 3\n";
    let lines: Vec<_> = faults(text).iter().map(|f| f.line).collect();
    assert_eq!(lines, [Some(3), Some(4), Some(6), Some(7), Some(9)]);
    assert_eq!(
        faults("\n\n[training]\nlearning_rate = -1\n")[0].to_string(),
        "run.toml:4: training.learning_rate: must be a number above 0 and at most 1; 3e-3 is usual"
    );
}

#[test]
fn a_loaded_file_is_checked_against_the_disk() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("run.toml");
    let missing = RunConfig::load(&path).expect_err("no file");
    assert!(missing[0].to_string().contains("run.toml: cannot be read"), "{}", missing[0]);

    fs::write(&path, "[data]\nsource = \"texts\"\ntokenizer = \"gpt2\"\ntokenizer_files = \"bpe\"\n")
        .expect("write");
    let found = RunConfig::load(&path).expect_err("nothing is there");
    let fields: Vec<_> = found.iter().map(|f| (f.line, f.field.as_str())).collect();
    assert_eq!(
        fields,
        [(Some(2), "data.source"), (Some(4), "data.tokenizer_files"), (Some(4), "data.tokenizer_files")]
    );
    assert!(found[0].message.contains(&folder.path().join("texts").display().to_string()), "{}", found[0]);

    for name in ["texts", "bpe"] {
        fs::create_dir(folder.path().join(name)).expect("folder");
    }
    for name in ["encoder.json", "vocab.bpe"] {
        fs::write(folder.path().join("bpe").join(name), "").expect("write");
    }
    let config = RunConfig::load(&path).expect("all is there");
    assert_eq!(config.data.source, Source::Path(folder.path().join("texts")), "relative to the file");
    let again = RunConfig::parse(&config.to_toml().expect("text"), "again").expect("sound");
    assert_eq!(again, config);
}

#[test]
fn a_file_named_like_a_source_comes_back_as_a_file() {
    let mut config = RunConfig::default();
    config.data.source = Source::Path("webster".into());
    let again = RunConfig::parse(&config.to_toml().expect("text"), "again").expect("sound");
    assert_eq!(again.data.source, Source::Path("./webster".into()));
}

/// Lines that are nearly a `run.toml`.
fn almost() -> impl Strategy<Value = String> {
    let key = prop_oneof![
        Just("layers".to_owned()),
        Just("learning_rate".to_owned()),
        Just("source".to_owned()),
        Just("stages".to_owned()),
        Just("name".to_owned()),
        "[a-z_.\"]{0,8}",
    ];
    let value = prop_oneof![
        any::<i64>().prop_map(|i| i.to_string()),
        any::<f64>().prop_map(|x| x.to_string()),
        any::<bool>().prop_map(|b| b.to_string()),
        "\"[a-z0-9/é]{0,8}\"",
        "\\[[0-9, ]{0,8}\\]",
        Just("{ a = 1 }".to_owned()),
        Just("1979-05-27T07:32:00Z".to_owned()),
        Just("-0x".to_owned()),
    ];
    let section =
        prop_oneof!["\\[[a-z]{0,9}\\]", Just("[model]".to_owned()), Just("[[training]]".to_owned())];
    let line = prop_oneof![3 => (key, value).prop_map(|(k, v)| format!("{k} = {v}")), 1 => section, 1 => "\\PC{0,20}"];
    proptest::collection::vec(line, 0..12).prop_map(|lines| lines.join("\n"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn no_text_makes_it_panic(text in prop_oneof![any::<String>(), almost()]) {
        match RunConfig::parse(&text, "run.toml") {
            Ok(config) => {
                let again = RunConfig::parse(&config.to_toml().expect("text"), "again").expect("sound");
                prop_assert_eq!(again, config);
            }
            Err(faults) => {
                prop_assert!(!faults.is_empty());
                let lines = text.matches('\n').count() + 1;
                for fault in faults {
                    prop_assert!(fault.line.is_none_or(|line| (1..=lines).contains(&line)), "{}", fault);
                }
            }
        }
    }

    #[test]
    fn any_sound_run_comes_back_from_text(
        steps in 1u64..1_000_000, seed in 0u64..=i64::MAX as u64, rate in 1e-9f64..1.0, heads in 1u32..16, times in 1u32..64,
        layers in 2u32..64, fraction in 0.01f64..0.5, heartbeat in 0.01f64..100.0,
    ) {
        let text = format!(
            "[model]\nlayers = {layers}\nheads = {heads}\nwidth = {}\n[training]\nsteps = {steps}\nseed = {seed}\n\
             learning_rate = {rate:?}\n[data]\nvalidation_fraction = {fraction:?}\n[pipeline]\nstages = 2\n\
             [session]\nheartbeat_seconds = {heartbeat:?}\nlease_seconds = 500\n",
            heads * times
        );
        let config = RunConfig::parse(&text, "run.toml").expect("sound");
        prop_assert_eq!(config.training.learning_rate, rate);
        let again = RunConfig::parse(&config.to_toml().expect("text"), "again").expect("sound");
        prop_assert_eq!(again, config);
    }
}

const BLOCKS: &str = "mode = \"block\"\n[model]\nlayers = 6\n";

#[test]
fn block_mode_is_read_and_comes_back_from_its_own_text() {
    let text = format!(
        "{BLOCKS}[blocks]\ncount = 2\nsigma_min = 0.5\nsigma_max = 8\ngamma = 0\n[rounds]\nlocal_steps = 7\n\
         delta = \"topk\"\ntop_k_per_mille = 10\naggregator = \"centred_clip\"\nclip_radius = 0.5\nouter = \"nesterov\"\n\
         deadline = 2.5\nmoments = \"fresh\"\nevaluate_by = \"workers\"\n"
    );
    let config = RunConfig::parse(&text, "run.toml").expect("sound");
    let spec = config.run_spec(256);
    let blocks = spec.blocks.expect("block mode");
    assert_eq!((blocks.count, blocks.sigma_min, blocks.sigma_max, blocks.gamma), (2, 0.5, 8.0, 0.0));
    assert_eq!(blocks.delta, DeltaEncoding::TopK { per_mille: 10 });
    assert_eq!(config.rounds.aggregator(), Aggregator::CentredClip { radius: Some(0.5), iterations: 3 });
    assert_eq!(config.rounds.outer(), OuterStep::Nesterov { learning_rate: 0.7, momentum: 0.9 });
    assert_eq!(config.rounds.deadline_policy(), DeadlinePolicy::Fixed { seconds: 2.5 });
    assert_eq!(config.rounds.start_with, 2, "each block has a worker by default");
    let again = RunConfig::parse(&config.to_toml().expect("text"), "again").expect("sound");
    assert_eq!(again, config);
    assert_eq!(RunConfig::default().run_spec(256).blocks, None);
}

#[test]
fn what_makes_no_sense_in_block_mode_is_named_with_what_to_do() {
    let cases = [
        (
            "[blocks]\nsigma_min = 10\n",
            "blocks.sigma_min",
            "make blocks.sigma_min smaller than blocks.sigma_max",
        ),
        ("[blocks]\nsigma_max = 1\n", "blocks.sigma_max", "make blocks.sigma_min smaller"),
        ("[blocks]\nsigma_min = 0\n", "blocks.sigma_min", "above 0"),
        ("[blocks]\ncount = 0\n", "blocks.count", "from 1 to 512"),
        ("[blocks]\ncount = 4\n", "blocks.count", "a multiple of blocks.count"),
        ("[blocks]\ngamma = -0.1\n", "blocks.gamma", "from 0 to 1000"),
        ("[rounds]\nstart_with = 2\n", "rounds.start_with", "lower blocks.count"),
        ("[session]\nmax_workers = 2\n", "session.max_workers", "raise session.max_workers"),
        ("[rounds]\ndelta = \"f64\"\n", "rounds.delta", "there is no \"f64\""),
        ("[rounds]\naggregator = \"medain\"\n", "rounds.aggregator", "did you mean \"median\"?"),
        ("[rounds]\ndeadline = 0\n", "rounds.deadline", "\"adaptive\" or a number of seconds"),
        (
            "[rounds]\nleast_participation = 0.9\n",
            "rounds.least_participation",
            "lower rounds.least_participation",
        ),
        ("[rounds]\nlongest_seconds = 30\n", "rounds.longest_seconds", "several leases long"),
        ("[rounds]\nouter_momentum = 1\n", "rounds.outer_momentum", "below 1"),
        ("[pipeline]\nwire = \"f16\"\n", "pipeline.wire", "set mode = \"pipeline\""),
    ];
    for (text, field, words) in cases {
        let found = faults(&format!("{BLOCKS}{text}"));
        assert_eq!(found.len(), 1, "{text}: {found:?}");
        assert_eq!(found[0].field, field, "{text}");
        assert!(found[0].message.contains(words), "{text}: {}", found[0].message);
        assert_eq!(found[0].line, Some(5), "{text}");
    }
    let found = faults("[rounds]\nlocal_steps = 5\n");
    assert!(found[0].message.contains("set mode = \"block\""), "{found:?}");
}

#[test]
fn a_number_may_be_written_in_any_notation() {
    let block = |text: &str| RunConfig::parse(&format!("{BLOCKS}{text}"), "run.toml").expect("sound");
    for sixteen in ["16", "16.0", "1.6e1", "0x10", "0o20", "0b1_0000"] {
        let config = block(&format!("[rounds]\ndeadline = {sixteen}\nnorm_limit = {sixteen}\n"));
        assert_eq!(config.rounds.deadline, Some(16.0), "{sixteen}");
        assert_eq!(config.rounds.norm_limit, 16.0, "{sixteen}");
    }
    for four in ["4", "0x4", "0b100"] {
        let config =
            block(&format!("[training]\nmicro_batches = {four}\nsteps = {four}\nwarmup_steps = 0\n"));
        assert_eq!((config.training.micro_batches, config.training.steps), (Some(4), 4), "{four}");
    }
    let config = RunConfig::parse("[pipeline]\nstages = 0x2\n", "run.toml").expect("sound");
    assert_eq!(config.pipeline.stages, Stages::Exactly(2));
}

#[test]
fn a_byte_order_mark_and_line_ends_of_windows_are_no_faults() {
    let text = "\u{feff}name = \"windows\"\r\n\r\n[data]\r\nsource = \"text.txt\"\r\n";
    let config = RunConfig::parse(text, "run.toml").expect("sound");
    assert_eq!((config.name.as_str(), config.data.source), ("windows", Source::Path("text.txt".into())));
    let found = faults("\u{feff}name = \"..\"\r\n\r\n[data]\r\nsorce = \"text.txt\"\r\n");
    let places: Vec<_> = found.iter().map(|f| (f.line, f.field.as_str())).collect();
    assert_eq!(places, [(Some(1), "name"), (Some(4), "data.sorce")]);
}

#[test]
fn numbers_out_of_reach_and_foreign_letters_are_each_named_once() {
    let text = "name = \"gr\u{fc}n\"\n[training]\nsteps = 99999999999999999999\nseed = -1\nlearning_rate = nan\n\
                warmup_steps = 1_0\n";
    let found = faults(text);
    let places: Vec<_> = found.iter().map(|f| (f.line, f.field.as_str())).collect();
    assert_eq!(
        places,
        [
            (Some(1), "name"),
            (Some(3), "training.steps"),
            (Some(4), "training.seed"),
            (Some(5), "training.learning_rate")
        ]
    );
    let huge = format!("[training]\nsteps = {}\n", "9".repeat(50));
    assert!(faults(&huge)[0].message.contains("from 1 to 1000000000"), "beyond 128 bits");
    assert!(faults("[training]\nclip_norm = 1e999\n")[0].message.contains("above 0"), "beyond f64");
}

#[test]
fn a_file_that_is_not_utf8_is_told_how_to_become_so() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("run.toml");
    let utf16: Vec<u8> = "\u{feff}name = \"a\"".encode_utf16().flat_map(u16::to_le_bytes).collect();
    fs::write(&path, utf16).expect("write");
    let found = RunConfig::load(&path).expect_err("UTF-16");
    assert!(found[0].message.contains("save it as UTF-8"), "{}", found[0]);
    fs::write(&path, b"[data]\nsource = \"caf\xe9.txt\"\n").expect("write");
    let found = RunConfig::load(&path).expect_err("Latin-1");
    assert_eq!(found[0].line, Some(2));
    assert!(found[0].message.contains("save the file as UTF-8"), "{}", found[0]);
}

/// Whether a frame takes a tensor of this shape.
fn frame_takes(shape: &[u32], encoding: Encoding) -> bool {
    let bytes = TensorMeta::expected_bytes(encoding, shape).expect("in range");
    let meta = TensorMeta { encoding, shape: shape.to_vec(), bytes, checksum: 0 };
    meta.check().is_ok() && bytes <= MAX_PAYLOAD as u64
}

#[test]
fn the_windows_of_a_round_must_fit_a_frame() {
    let text = |steps: u32, sequences: u32| {
        format!(
            "mode = \"block\"\n[model]\nlayers = 3\nwidth = 16\nheads = 1\ncontext = 256\n\
             [training]\nsequences = {sequences}\n[rounds]\nlocal_steps = {steps}\n"
        )
    };
    for (steps, sequences) in
        [(500, 256), (256, 255), (255, 256), (256, 256), (255, 255), (4096, 15), (4096, 16)]
    {
        let sound = RunConfig::parse(&text(steps, sequences), "run.toml");
        let fits = frame_takes(&[steps, sequences, 257], Encoding::U32);
        assert_eq!(sound.is_ok(), fits, "{steps} x {sequences}: {sound:?}");
    }
    let found = faults(&text(500, 256));
    assert_eq!((found.len(), found[0].line, found[0].field.as_str()), (1, Some(8), "training.sequences"));
    assert!(found[0].message.contains("32896000 values"), "{}", found[0]);
    assert!(found[0].message.contains("give rounds.local_steps = 255 or fewer"), "{}", found[0]);
}

#[test]
fn activations_must_fit_a_frame_where_they_travel() {
    let text = |mode: &str, sequences: u32| {
        format!(
            "mode = \"{mode}\"\n[model]\nlayers = 3\nheads = 1\nwidth = 1024\ncontext = 1024\n\
             [training]\nsequences = {sequences}\n"
        )
    };
    for sequences in [15, 16, 17] {
        let sound = RunConfig::parse(&text("pipeline", sequences), "run.toml").is_ok();
        assert_eq!(sound, frame_takes(&[sequences, 1024, 1024], Encoding::F32), "{sequences}");
    }
    RunConfig::parse(&text("block", 17), "run.toml").expect("no activation leaves a worker in block mode");
}

#[test]
fn heartbeats_leases_and_rounds_are_each_longer_than_the_one_before() {
    let block = |text: &str| RunConfig::parse(&format!("{BLOCKS}{text}"), "run.toml");
    let config = block("").expect("sound");
    assert_eq!((config.session.heartbeat_seconds, config.session.lease_seconds), (5.0, 30.0));
    // A deadline shorter than the usual lease brings a shorter lease along.
    let config = block("[rounds]\ndeadline = 16\n").expect("sound");
    assert_eq!((config.session.heartbeat_seconds, config.session.lease_seconds), (2.0, 8.0));
    let config = RunConfig::parse("[session]\nlease_seconds = 4\n", "run.toml").expect("sound");
    assert_eq!(config.session.heartbeat_seconds, 1.0);

    let found = block("[rounds]\ndeadline = 16\n[session]\nlease_seconds = 20\n").expect_err("too long");
    assert_eq!((found[0].line, found[0].field.as_str()), (Some(5), "rounds.deadline"));
    assert!(found[0].message.contains("before a lease of 20 s does"), "{}", found[0]);
    let found = faults("[session]\nstep_deadline_seconds = 30\n");
    assert_eq!((found[0].line, found[0].field.as_str()), (Some(2), "session.step_deadline_seconds"));
    for deadline in [0.1, 0.15, 1.0, 59.0, 60.0, 61.0, 86_400.0] {
        let config = block(&format!("[rounds]\ndeadline = {deadline}\n")).expect("sound");
        let session = &config.session;
        assert!(session.heartbeat_seconds < session.lease_seconds && session.lease_seconds < deadline);
        let again = RunConfig::parse(&config.to_toml().expect("text"), "again").expect("sound");
        assert_eq!(again, config);
    }
}

/// A file of the repository.
fn in_repository(path: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

#[test]
fn the_reference_is_what_the_code_says() {
    let (path, now) = (in_repository("docs/run-toml.md"), reference().expect("text"));
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, &now).expect("docs/run-toml.md can be written");
    }
    let page = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        page == now,
        "docs/run-toml.md differs from the fields in coordinator/src/config; run `UPDATE_DOCS=1 cargo test -p \
         coordinator --test config` and commit the page"
    );
}

#[test]
fn the_examples_of_the_readme_are_sound() {
    let readme = fs::read_to_string(in_repository("README.md")).expect("README.md");
    let examples = readme.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next());
    let runs: Vec<&str> = examples.filter(|text| !text.contains("[[device]]")).collect();
    assert!(runs.len() >= 2, "a run in either mode, and what else is shown");
    for text in runs {
        RunConfig::parse(text, "README.md").expect("sound");
    }
}
