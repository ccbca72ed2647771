//! One thing wrong with a `run.toml`.

use std::fmt;

/// A fault, for a person: `run.toml:12: training.learning_rate: must be above 0; 3e-3 is usual`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct ConfigFault {
    /// The file, as it was named.
    pub file: String,
    /// From 1; None where the field is left out and its default does not fit the others.
    pub line: Option<usize>,
    /// Path of the field, like `training.learning_rate`; empty for a fault of the whole file.
    pub field: String,
    /// What is wrong and what to do.
    pub message: String,
}

impl fmt::Display for ConfigFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, field, message } = self;
        write!(f, "{file}:")?;
        if let Some(line) = line {
            write!(f, "{line}:")?;
        }
        if !field.is_empty() {
            write!(f, " {field}:")?;
        }
        write!(f, " {message}")
    }
}
