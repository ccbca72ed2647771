//! From the text of a `run.toml` to a checked run.

use super::{begun::Begun, begun_rules, fault::ConfigFault, read::Reading, rules, run_config::RunConfig};

impl Default for RunConfig {
    /// The run of an empty `run.toml`.
    fn default() -> Self {
        Self::checked(&mut Reading::new("", ""), &Begun::default())
    }
}

impl RunConfig {
    /// Reads and checks the text of a `run.toml`; `file_name` is for the faults' words. Touches no disk.
    ///
    /// Every field is optional; an empty text is the default run.
    ///
    /// # Errors
    /// Everything that is wrong with it, in the order of the lines.
    pub fn parse(text: &str, file_name: &str) -> Result<Self, Vec<ConfigFault>> {
        let mut reading = Reading::new(text, file_name);
        let config = Self::checked(&mut reading, &Begun::default());
        reading.finish(config)
    }

    /// Takes all fields out of a document and holds them against each other and against the model that the run begins
    /// with; what is wrong is noted there.
    pub(super) fn checked(reading: &mut Reading<'_>, begun: &Begun) -> Self {
        let config = Self::read(reading, begun);
        begun_rules::check(begun, reading, &config);
        rules::check(reading, &config);
        config
    }
}
