//! `run.toml`: what the organizer asks for.
//!
//! Reading it finds all faults at once, each with its line, its field and what to do about it.
//!
//! | to change | look into |
//! |---|---|
//! | a field, its doc, default, limits | `fields`, `block_fields`: declared once, by the macro of `section` |
//! | all fields together | `run_config` |
//! | what must hold between fields | `rules`, `block_rules`; `rules_of_both` for what both ask |
//! | kinds of values | `kind`, `run_kinds`; what they choose among: `choices` |
//! | how faults are found and named | `parse`, `read`, `names`, `likeness`, `fault`, `file` |
//! | what the program makes of the fields | `derived` |
//!
//! `docs/run-toml.md` is [`reference()`]; `UPDATE_DOCS=1 cargo test -p coordinator --test config` writes it anew.

mod begun;
mod begun_rules;
mod block_fields;
mod block_rules;
mod choices;
mod derived;
mod fault;
mod fields;
mod file;
mod kind;
mod likeness;
mod names;
mod parse;
mod read;
mod reference;
mod rules;
mod rules_of_both;
mod run_config;
mod run_kinds;
mod section;

pub use block_fields::{BlocksConfig, RoundsConfig};
pub use choices::{
    AggregatorName, DeltaName, ModeName, MomentsName, OuterName, PRESETS, Preset, ServingPlace,
};
pub use fault::ConfigFault;
pub use fields::{
    DataConfig, ModelConfig, PipelineConfig, ServingConfig, SessionConfig, SnapshotConfig, TrainingConfig,
};
pub use reference::reference;
pub use run_config::RunConfig;
