//! A whole `run.toml`, section by section.

use super::{
    begun::Begun,
    block_fields::{BlocksConfig, RoundsConfig},
    choices::ModeName,
    fields::{
        DataConfig, ModelConfig, PipelineConfig, ServingConfig, SessionConfig, SnapshotConfig, TopConfig,
        TrainingConfig,
    },
    read::Reading,
    section::{SectionDoc, Written},
};

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
    /// `[serving]`
    pub serving: ServingConfig,
}

impl RunConfig {
    /// The sections, in the order of [`RunConfig::write`] and of the reference.
    pub(super) const SECTIONS: [&'static SectionDoc; 10] = [
        &TopConfig::DOC,
        &ModelConfig::DOC,
        &DataConfig::DOC,
        &TrainingConfig::DOC,
        &PipelineConfig::DOC,
        &BlocksConfig::DOC,
        &RoundsConfig::DOC,
        &SnapshotConfig::DOC,
        &SessionConfig::DOC,
        &ServingConfig::DOC,
    ];

    /// Takes all sections out of a document. [`super::rules`] checks them against each other.
    pub(super) fn read(reading: &mut Reading<'_>, begun: &Begun) -> Self {
        reading.check_names(&Self::SECTIONS);
        let TopConfig { name, mode } = TopConfig::read(reading);
        let model = ModelConfig::read(reading, begun);
        let data = DataConfig::read(reading, begun);
        let training = TrainingConfig::read(reading, &model);
        let pipeline = PipelineConfig::read(reading);
        let blocks = BlocksConfig::read(reading);
        let rounds = RoundsConfig::read(reading, &blocks);
        let snapshots = SnapshotConfig::read(reading);
        let session = SessionConfig::read(reading, rounds.deadline);
        let serving = ServingConfig::read(reading, mode);
        Self { name, mode, model, data, training, pipeline, blocks, rounds, snapshots, session, serving }
    }

    /// The values of all sections, in the order of [`RunConfig::SECTIONS`].
    pub(super) fn write(&self) -> Result<[Vec<Written>; 10], toml::ser::Error> {
        let Self { name, mode, model, data, training, pipeline, blocks, rounds, snapshots, session, serving } =
            self;
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
            serving.write()?,
        ])
    }

    /// The run as a `run.toml` with every field spelled out; [`RunConfig::parse`] gives the same run back.
    ///
    /// # Errors
    /// A path that is not UTF-8.
    pub fn to_toml(&self) -> Result<String, toml::ser::Error> {
        let mut file = toml::Table::new();
        for (section, values) in Self::SECTIONS.iter().zip(self.write()?) {
            // What is of another mode may not stand in the file.
            if !section.is_of(self.mode) {
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
