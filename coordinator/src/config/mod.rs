//! `run.toml`: what the organizer asks for.
//!
//! Reading it finds all faults at once, each with its line, its field and what to do about it.
//!
//! | to change | look into |
//! |---|---|
//! | a field, its doc, default, limits | `fields`, `block_fields`: declared once, by the macro of `section` |
//! | what must hold between fields | `rules`, `block_rules` |
//! | kinds of values | `kind`, `run_kinds`; what they choose among: `choices` |
//! | how faults are found and named | `read`, `names`, `fault`, `file` |
//! | what the program makes of the fields | `derived` |
//!
//! `docs/run-toml.md` is [`reference()`]; `UPDATE_DOCS=1 cargo test -p coordinator --test config` writes it anew.

mod block_fields;
mod block_rules;
mod choices;
mod derived;
mod fault;
mod fields;
mod file;
mod kind;
mod names;
mod read;
mod reference;
mod rules;
mod run_kinds;
mod section;

pub use block_fields::{BlocksConfig, RoundsConfig};
pub use choices::{AggregatorName, DeltaName, ModeName, MomentsName, OuterName, PRESETS, Preset};
pub use fault::ConfigFault;
use fields::TopConfig;
pub use fields::{DataConfig, ModelConfig, PipelineConfig, SessionConfig, SnapshotConfig, TrainingConfig};
use read::Reading;
pub use reference::reference;
use section::{SectionDoc, Written};

/// A checked `run.toml`, with every default filled in.
#[derive(Debug, Clone, PartialEq)]
pub struct RunConfig {
    /// Name of the run.
    pub name: String,
    /// How the model is trained.
    pub mode: ModeName,
    /// `[model]`
    pub model: ModelConfig,
    /// `[data]`
    pub data: DataConfig,
    /// `[training]`
    pub training: TrainingConfig,
    /// `[pipeline]`; the defaults in block mode.
    pub pipeline: PipelineConfig,
    /// `[blocks]`; the defaults in pipeline mode.
    pub blocks: BlocksConfig,
    /// `[rounds]`; the defaults in pipeline mode.
    pub rounds: RoundsConfig,
    /// `[snapshots]`
    pub snapshots: SnapshotConfig,
    /// `[session]`
    pub session: SessionConfig,
}

impl Default for RunConfig {
    /// The run of an empty `run.toml`.
    fn default() -> Self {
        Self::read(&mut Reading::new("", ""))
    }
}

impl RunConfig {
    /// The sections, in the order of [`RunConfig::write`] and of the reference.
    const SECTIONS: [&'static SectionDoc; 9] = [
        &TopConfig::DOC,
        &ModelConfig::DOC,
        &DataConfig::DOC,
        &TrainingConfig::DOC,
        &PipelineConfig::DOC,
        &BlocksConfig::DOC,
        &RoundsConfig::DOC,
        &SnapshotConfig::DOC,
        &SessionConfig::DOC,
    ];

    /// Reads and checks the text of a `run.toml`; `file_name` is for the faults' words. Touches no disk.
    ///
    /// Every field is optional; an empty text is the default run.
    ///
    /// # Errors
    /// Everything that is wrong with it, in the order of the lines.
    pub fn parse(text: &str, file_name: &str) -> Result<Self, Vec<ConfigFault>> {
        let mut reading = Reading::new(text, file_name);
        let config = Self::read(&mut reading);
        reading.finish(config)
    }

    /// Takes all sections out of a document and checks them against each other.
    fn read(reading: &mut Reading<'_>) -> Self {
        reading.check_names(&Self::SECTIONS);
        let TopConfig { name, mode } = TopConfig::read(reading);
        let model = ModelConfig::read(reading);
        let data = DataConfig::read(reading);
        let training = TrainingConfig::read(reading, &model);
        let pipeline = PipelineConfig::read(reading);
        let blocks = BlocksConfig::read(reading);
        let rounds = RoundsConfig::read(reading, &blocks);
        let snapshots = SnapshotConfig::read(reading);
        let session = SessionConfig::read(reading, rounds.deadline);
        let config = Self { name, mode, model, data, training, pipeline, blocks, rounds, snapshots, session };
        rules::check(reading, &config);
        config
    }

    /// The values of all sections, in the order of [`RunConfig::SECTIONS`].
    fn write(&self) -> Result<[Vec<Written>; 9], toml::ser::Error> {
        let Self { name, mode, model, data, training, pipeline, blocks, rounds, snapshots, session } = self;
        Ok([
            TopConfig { name: name.clone(), mode: *mode }.write()?,
            model.write()?,
            data.write()?,
            training.write()?,
            pipeline.write()?,
            blocks.write()?,
            rounds.write()?,
            snapshots.write()?,
            session.write()?,
        ])
    }

    /// The run as a `run.toml` with every field spelled out; [`RunConfig::parse`] gives the same run back.
    ///
    /// # Errors
    /// A path that is not UTF-8.
    pub fn to_toml(&self) -> Result<String, toml::ser::Error> {
        let mut file = toml::Table::new();
        for (section, values) in Self::SECTIONS.iter().zip(self.write()?) {
            // What is of the other mode may not stand in the file.
            if section.mode.is_some_and(|mode| mode != self.mode) {
                continue;
            }
            let values = values.into_iter().filter_map(|w| Some((w.field.to_owned(), w.value?)));
            match section.name {
                "" => file.extend(values),
                name => drop(file.insert(name.to_owned(), toml::Value::Table(values.collect()))),
            }
        }
        toml::to_string(&file)
    }
}
