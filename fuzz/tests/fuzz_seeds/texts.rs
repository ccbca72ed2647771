//! Headers of HTTP, and `run.toml`s.

use coordinator::config::RunConfig;

use crate::Seeds;

pub(crate) fn ranges() -> Seeds {
    let texts = [
        (10_u64, "bytes=0-3"),
        (10, "bytes=4-"),
        (10, "bytes=4-99"),
        (10, "bytes=4-18446744073709551615"),
        (6, "bytes 4-9/10"),
        (1 << 20, "bytes 1048576-2097151/4194304"),
        (u64::MAX, "bytes=18446744073709551613-"),
        (u64::MAX, "bytes 0-18446744073709551614/18446744073709551615"),
    ];
    let seed = |(number, (length, text)): (usize, (u64, &str))| {
        (format!("real-{number}"), [&length.to_le_bytes(), text.as_bytes()].concat())
    };
    texts.into_iter().enumerate().map(seed).collect()
}

/// Some fields of either mode, and all of them.
pub(crate) fn run_tomls() -> Seeds {
    let pipeline = r#"
name = "my.run_1"
[model]
preset = "micro"
tie_embeddings = true
[data]
source = "texts/all.txt"
tokenizer = "gpt2"
tokenizer_files = "bpe"
[training]
steps = 1_000
micro_batches = "auto"
seed = 0x2a
learning_rate = 1e-3
[pipeline]
stages = 3
wire = "int8"
[snapshots]
moments = "f16"
[session]
lease_seconds = 1
"#;
    let block = r#"
mode = "block"
[model]
layers = 6
[blocks]
count = 3
sigma_max = 20
[rounds]
delta = "topk"
aggregator = "centred_clip"
clip_radius = 0.5
outer = "nesterov"
deadline = 12.5
"#;
    let whole = |text| RunConfig::parse(text, "run.toml").unwrap().to_toml().unwrap();
    [
        ("real-empty", String::new()),
        ("real-pipeline", pipeline.into()),
        ("real-pipeline-whole", whole(pipeline)),
        ("real-block", block.into()),
        ("real-block-whole", whole(block)),
    ]
    .map(|(name, text)| (name.to_owned(), text.into_bytes()))
    .into()
}
