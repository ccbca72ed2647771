//! What the fields choose among: modes, places, presets of a model's shapes, and the names of block mode's rules.

/// `serving.where`: who writes texts for whoever asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServingPlace {
    /// Nobody.
    Off,
    /// This process, from the newest snapshot.
    Coordinator,
    /// The workers that hold the model.
    Workers,
}

impl ServingPlace {
    /// Where nothing is said.
    pub(super) const fn usual(mode: ModeName) -> Self {
        match mode {
            ModeName::Serve => Self::Workers,
            ModeName::Pipeline | ModeName::Block => Self::Off,
        }
    }

    /// The names in a file.
    pub(super) const CHOICES: [(&'static str, Self); 3] =
        [("off", Self::Off), ("coordinator", Self::Coordinator), ("workers", Self::Workers)];
}

/// `mode`: how the model is trained.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModeName {
    /// A GPT-2 cut into stages.
    Pipeline,
    /// Denoising blocks, trained apart and averaged in rounds.
    Block,
    /// A GPT-2 cut into stages that only write texts: it is not trained.
    Serve,
}

impl ModeName {
    /// Of sections that every mode has.
    pub(super) const ANY: &[Self] = &[Self::Pipeline, Self::Block, Self::Serve];
    /// Of sections about training.
    pub(super) const TRAINS: &[Self] = &[Self::Pipeline, Self::Block];
    /// Of sections about a model that is cut into stages.
    pub(super) const STAGES: &[Self] = &[Self::Pipeline, Self::Serve];
    /// Of sections about blocks.
    pub(super) const BLOCKS: &[Self] = &[Self::Block];

    /// The names in a file.
    pub(super) const CHOICES: [(&'static str, Self); 3] = [
        (Self::Pipeline.name(), Self::Pipeline),
        (Self::Block.name(), Self::Block),
        (Self::Serve.name(), Self::Serve),
    ];

    /// The name in a file.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Pipeline => "pipeline",
            Self::Block => "block",
            Self::Serve => "serve",
        }
    }
}

/// `rounds.delta`: how what a worker learned is encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeltaName {
    /// 4 bytes a number.
    F32,
    /// 2 bytes a number.
    F16,
    /// About 1 byte a number.
    Int8,
    /// The largest numbers alone; the rest is added to the next round's.
    TopK,
}

/// `rounds.aggregator`: how the replicas' deltas become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AggregatorName {
    /// The plain mean.
    Mean,
    /// The mean, with each delta shortened to the median length.
    ClipToMedianNorm,
    /// The mean without the smallest and the largest, number by number.
    TrimmedMean,
    /// The median, number by number.
    Median,
    /// Repeated means of what lies within a radius of the one before.
    CentredClip,
}

/// `rounds.outer`: how the averaged delta becomes new weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OuterName {
    /// It is added.
    Mean,
    /// SGD with Nesterov momentum, as in DiLoCo.
    Nesterov,
}

/// `rounds.moments`: what becomes of AdamW's moments between two rounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MomentsName {
    /// They stay on the worker while it has the block.
    Kept,
    /// Every round begins without: any replica's round can be done again from the published weights alone.
    Fresh,
}

/// A name for a model's shapes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Preset {
    /// As `model.preset` gives it.
    pub name: &'static str,
    /// `model.layers`.
    pub layers: u32,
    /// `model.width`.
    pub width: u32,
    /// `model.heads`.
    pub heads: u32,
    /// `model.context`.
    pub context: u32,
}

/// The presets of `model.preset`, smallest first; the first is the default.
pub const PRESETS: [Preset; 5] = [
    Preset { name: "nano", layers: 3, width: 48, heads: 3, context: 64 },
    Preset { name: "micro", layers: 4, width: 128, heads: 4, context: 128 },
    Preset { name: "mini", layers: 12, width: 256, heads: 8, context: 256 },
    Preset { name: "gpt2", layers: 12, width: 768, heads: 12, context: 1024 },
    Preset { name: "gpt2-medium", layers: 24, width: 1024, heads: 16, context: 1024 },
];

/// [`PRESETS`] by their names.
pub(super) const PRESET_CHOICES: [(&str, Preset); PRESETS.len()] = {
    let mut choices = [("", PRESETS[0]); PRESETS.len()];
    let mut i = 0;
    while i < PRESETS.len() {
        choices[i] = (PRESETS[i].name, PRESETS[i]);
        i += 1;
    }
    choices
};
