//! The fields of `run.toml` that both modes have, and those of `[pipeline]`.

use control::pipeline::plan::Stages;
use std::path::PathBuf;

use protocol::{limits::LOSSES, spec::Moments, tensor::Encoding};

use super::{
    begun::Begun,
    choices::{ModeName, PRESET_CHOICES, PRESETS, Preset, ServingPlace},
    kind::{Choice, Flag, Number, Optional, Path, Whole, WordOr},
    run_kinds::{MOST_LAYERS, RunName, StageCount, TextSource},
    section::section,
};
use crate::data::{corpus::Source, tokenizer::TokenizerKind};

/// Steps beyond which a number is surely a slip.
const MOST_STEPS: u64 = 1_000_000_000;

section! {
    /// Fields above all sections.
    "", ModeName::ANY => pub(super) struct TopConfig() {
        /// Name of the run, for people and for its folder.
        name: String = "webster-nano".to_owned() => RunName;
        /// What is done with the model: "pipeline" trains it cut into stages, "block" as denoising blocks that are trained
        /// apart and averaged in rounds; "serve" does not train it: the model of `model.from` is cut into stages, which
        /// write texts.
        mode: ModeName = ModeName::Pipeline => Choice(&ModeName::CHOICES);
    }
}

section! {
    /// The shapes of a GPT-2.
    "model", ModeName::ANY => pub struct ModelConfig(begun: &Begun) {
        shorthand {
            /// A name for the shapes; fields beside it win.
            preset: Preset = PRESETS[0], "`\"nano\"`" => Choice(&PRESET_CHOICES);
        }
        /// Folder of a GPT-2 whose weights the run begins with, in pipeline mode: a checkpoint, or what transformers has
        /// saved or `cohort import` made of it. Shapes and tokenizer are then its own. It is read when the run begins; one
        /// that is resumed goes on from its snapshots.
        from: Option<PathBuf> = None, "weights drawn from `training.seed`"
            => Optional(Path("the folder of a GPT-2"));
        /// Transformer layers.
        layers: u32 = begun.sizes.map_or(preset.layers, |sizes| sizes.layers), "from the preset or `model.from`"
            => Whole(1..=MOST_LAYERS);
        /// d, features per position.
        width: u32 = begun.sizes.map_or(preset.width, |sizes| sizes.width), "from the preset or `model.from`"
            => Whole(1..=16_384);
        /// Attention heads; divides `model.width`.
        heads: u32 = begun.sizes.map_or(preset.heads, |sizes| sizes.heads), "from the preset or `model.from`"
            => Whole(1..=512);
        /// Rows of the position table: the longest sequence the model can read.
        context: u32 = begun.sizes.map_or(preset.context, |sizes| sizes.context), "from the preset or `model.from`"
            => Whole(1..=32_768);
        /// Use the token table as LM head too. In block mode the table is always shared.
        tie_embeddings: bool = begun.sizes.is_some_and(|sizes| sizes.tie_embeddings), "false, or as in `model.from`"
            => Flag;
    }
}

section! {
    /// The text, and how it becomes tokens.
    "data", ModeName::ANY => pub struct DataConfig(begun: &Begun) {
        /// A text file or a folder of them; "webster" is the dictionary in the program.
        source: Source = Source::Webster => TextSource;
        /// What a token is: a byte (V = 256), a character of the text, or an entry of GPT-2's vocabulary (V = 50,257).
        tokenizer: TokenizerKind = begun.tokenizer.unwrap_or(TokenizerKind::Bytes), "\"bytes\", or as in `model.from`"
            => Choice(&[
            (TokenizerKind::Bytes.name(), TokenizerKind::Bytes),
            (TokenizerKind::Characters.name(), TokenizerKind::Characters),
            (TokenizerKind::Gpt2.name(), TokenizerKind::Gpt2),
        ]);
        /// Folder of `encoder.json` and `vocab.bpe` for the tokenizer gpt2, or of `vocab.json` and `merges.txt` as
        /// transformers calls them.
        tokenizer_files: Option<PathBuf> = begun.tokenizer_files.clone(), "the files in the program, or in `model.from`"
            => Optional(Path("the folder of encoder.json and vocab.bpe"));
        /// Read each `<|endoftext|>` in the text as GPT-2's one token for the end of a document, and in prompts too. Else it
        /// is ordinary text, seven tokens. Only the tokenizer gpt2 has it.
        end_of_text: bool = false => Flag;
        /// Share of the tokens, at the end of the text, that is held out to validate on.
        validation_fraction: f64 = 0.1 => Number::within(0.0, 0.5);
    }
}

section! {
    /// The optimizer and its schedule.
    "training", ModeName::TRAINS => pub struct TrainingConfig(model: &ModelConfig) {
        /// Optimizer steps of the whole run; in block mode, local steps of each block.
        steps: u64 = 2000 => Whole(1..=MOST_STEPS);
        /// M, micro-batches in a step; "auto" has M chosen at the first plan.
        micro_batches: Option<u32> = Some(4) => WordOr("auto", Whole(1..=LOSSES as u32));
        /// N, sequences in a micro-batch.
        sequences: u32 = 4 => Whole(1..=4096);
        /// T, tokens in a sequence; at most `model.context`.
        context: u32 = model.context, "`model.context`" => Whole(1..=32_768);
        /// Seed of the weights and of the order of the data.
        seed: u64 = 1 => Whole(0..=i64::MAX as u64);
        /// Rate at the end of the warm-up.
        learning_rate: f64 = 3e-3 => Number::above(0.0, 1.0);
        /// Steps of linear warm-up; 0 starts at the full rate.
        warmup_steps: u64 = (steps / 10).min(100), "a tenth of `training.steps`, at most 100" => Whole(0..=MOST_STEPS);
        /// Rate at the last step, down a cosine; at most `training.learning_rate`.
        final_learning_rate: f64 = learning_rate / 10.0, "a tenth of `training.learning_rate`"
            => Number::NOT_NEGATIVE;
        /// AdamW's decay of the first moment, per step.
        beta1: f64 = 0.9 => Number::below(0.0, 1.0);
        /// AdamW's decay of the second moment, per step.
        beta2: f64 = 0.95 => Number::below(0.0, 1.0);
        /// What AdamW adds to the root of the second moment.
        epsilon: f64 = 1e-8 => Number::above(0.0, 1.0);
        /// AdamW's decoupled decay, times the learning rate, of tensors of two or more dimensions.
        weight_decay: f64 = 0.1 => Number::within(0.0, 1e6);
        /// Largest global norm of the gradients.
        clip_norm: f64 = 1.0 => Number::POSITIVE;
        /// Steps between measurements on the held-out split; 0: never.
        validate_every: u64 = 20 => Whole(0..=MOST_STEPS);
        /// Batches of one measurement, each of N sequences.
        validation_batches: u32 = 4 => Whole(1..=4096);
    }
}

section! {
    /// How the layers are shared out, and how tensors travel between them.
    "pipeline", ModeName::STAGES => pub struct PipelineConfig() {
        /// Workers that hold a part; "auto" takes as many as make the slowest stage fastest.
        stages: Stages = Stages::Auto => StageCount;
        /// Encoding of activations and gradients on the wire.
        wire: Encoding = Encoding::F32 => Choice(&[
            ("f32", Encoding::F32),
            ("f16", Encoding::F16),
            ("int8", Encoding::Int8),
        ]);
        /// Keep only a stage's inputs and compute its forward again in the backward pass.
        recompute: bool = false => Flag;
        /// Measured workers to wait for before the first step.
        start_with: u32 = least_workers(stages), "`pipeline.stages`, 1 for \"auto\"" => Whole(1..=1000);
    }
}

section! {
    /// What is kept to go on from after a loss.
    "snapshots", ModeName::TRAINS => pub struct SnapshotConfig() {
        /// Steps between snapshots; one more is taken at the end.
        every: u64 = 20 => Whole(1..=MOST_STEPS);
        /// Newest snapshots to keep on disk.
        keep: u32 = 3 => Whole(1..=1000);
        /// AdamW's moments in a snapshot: in f32, in f16 (a third less to send), or left out (two thirds less; AdamW
        /// then starts afresh).
        moments: Moments = Moments::Full => Choice(&[
            ("full", Moments::Full),
            ("f16", Moments::F16),
            ("none", Moments::None),
        ]);
    }
}

section! {
    /// The connections. The heartbeat is shorter than the lease, and the lease than a step or round may take.
    "session", ModeName::ANY => pub struct SessionConfig(round_deadline: Option<f64>) {
        /// A worker not heard from for this long has vanished.
        lease_seconds: f64 = round_deadline.map_or(30.0, |deadline| (deadline / 2.0).min(30.0)),
            "30, or half of a number in `rounds.deadline` if that is less" => Number::seconds(0.01, 3600.0);
        /// A worker says something at least this often.
        heartbeat_seconds: f64 = (lease_seconds / 4.0).clamp(0.01, 5.0),
            "5, or a quarter of `session.lease_seconds` if that is less" => Number::seconds(0.01, 3600.0);
        /// In pipeline mode, a plan of which nothing has been heard for this long is given up, and the steps since the
        /// last snapshot are done again.
        step_deadline_seconds: f64 = 7200.0 => Number::seconds(0.01, 86_400.0);
        /// Workers connected at a time.
        max_workers: u32 = 64 => Whole(1..=10_000);
        /// Of them, from one address: a school or a household has one, so raise it for a large class. 127.0.0.1 and ::1
        /// have no limit of their own.
        workers_per_address: u32 = max_workers - max_workers / 4,
            "three quarters of `session.max_workers`, so that nobody alone takes all places" => Whole(1..=10_000);
        /// HTTP connections of one address: a browser opens up to six.
        connections_per_address: u32 = 1024 => Whole(1..=10_000);
        /// Pages of one address that follow the run.
        streams_per_address: u32 = 128 => Whole(1..=10_000);
        /// Requests of one address, each second on average; a minute's worth may come at once. Joining counts as twenty,
        /// the whole curve and the metrics as ten.
        requests_per_second: u32 = 100 => Whole(1..=100_000);
        /// The coordinator is reached through a reverse proxy that adds the visitor's address to X-Forwarded-For, which
        /// counts as that of the request. It is believed only from this computer and from private addresses. Without
        /// it, all that comes through a proxy on this computer counts as the organizer's own.
        behind_proxy: bool = false => Flag;
    }
}

section! {
    /// Texts that the model writes for whoever asks, at `/v1/completions` and on the playground page.
    "serving", ModeName::ANY => pub struct ServingConfig(mode: ModeName) {
        /// Who writes them: "coordinator" writes with the newest snapshot, in its own process; "workers": the devices that
        /// hold the stages, in pipeline mode while they train, and alone with mode = "serve"; "off": nobody.
        r#where: ServingPlace = ServingPlace::usual(mode), "`\"off\"`, or `\"workers\"` with mode = \"serve\"" => Choice(&ServingPlace::CHOICES);
        /// Everybody may ask who reaches the coordinator; otherwise it takes the organizer's token.
        open: bool = true => Flag;
        /// Tokens that one text may have at most.
        most_tokens: u32 = 256 => Whole(1..=16_384);
        /// Texts that are written at a time, in one batch; by workers at most 128.
        at_once: u32 = 8 => Whole(1..=256);
        /// Texts that may wait for their turn. More are refused, with the time after which to ask again.
        waiting: u32 = 100 => Whole(0..=10_000);
        /// Texts that one address may ask for in a minute; 127.0.0.1 and ::1 have no limit.
        texts_per_minute: u32 = 60 => Whole(1..=100_000);
        /// Megabytes for the keys and values of all texts that are being written; one that does not fit waits.
        cache_mb: u32 = 512 => Whole(1..=1_000_000);
        /// Tokens that are guessed ahead where a text repeats itself, while the workers write: a right guess saves a traversal
        /// of all stages, and changes nothing that is written.
        drafts: u32 = 8 => Whole(0..=64);
        /// Of the time that the busiest stage has, what texts may take while the workers train.
        share: f64 = 0.2 => Number::above(0.0, 1.0);
        /// Threads that compute in the coordinator. They take their share of the computer from whatever else it does; the workers' devices are
        /// not touched.
        threads: u32 = 1 => Whole(1..=256);
    }
}

/// Workers that a plan of so many stages needs.
pub(super) fn least_workers(stages: Stages) -> u32 {
    match stages {
        Stages::Auto => 1,
        Stages::Exactly(count) => count,
    }
}
