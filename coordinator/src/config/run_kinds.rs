//! Kinds of values of single fields: the run's name, the source of its text, the number of stages.

use std::path::PathBuf;

use toml::{Value, de::DeValue, ser::Error as WriteError};

use super::kind::{Kind, Whole, WordOr, text};
use control::pipeline::plan::Stages;

use crate::data::corpus::Source;

/// `name`: the run's name, which names its folder too.
pub(super) struct RunName;

impl Kind for RunName {
    type Value = String;

    fn domain(&self) -> String {
        "1 to 64 letters, digits, `_`, `-` and `.`, the first of them no `.`".to_owned()
    }

    fn read(&self, value: &DeValue<'_>) -> Result<String, String> {
        let text = text(value)?;
        let good = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        if (1..=64).contains(&text.len()) && text.chars().all(good) && !text.starts_with('.') {
            Ok(text.to_owned())
        } else {
            Err(self.outside())
        }
    }

    fn write(&self, value: &String) -> Result<Option<Value>, WriteError> {
        Ok(Some(Value::String(value.clone())))
    }
}

/// Names of sources that `data.source` does not take for a path.
const NAMED_SOURCES: [&str; 4] = ["webster", "wikitext-2", "wikitext-103", "shakespeare"];

/// `data.source`: a path, or the built-in text.
pub(super) struct TextSource;

impl Kind for TextSource {
    type Value = Source;

    fn domain(&self) -> String {
        "the path of a text file or folder, or \"webster\"".to_owned()
    }

    fn read(&self, value: &DeValue<'_>) -> Result<Source, String> {
        match text(value)? {
            "" => Err(self.outside()),
            "webster" => Ok(Source::Webster),
            name if NAMED_SOURCES.contains(&name) => Err(format!(
                "downloading \"{name}\" is not built yet; fetch the text yourself and give its path (\"./{name}\" for \
                 one of that name), or use \"webster\""
            )),
            path => Ok(Source::Path(PathBuf::from(path))),
        }
    }

    fn write(&self, value: &Source) -> Result<Option<Value>, WriteError> {
        let path = match value {
            Source::Webster => return Ok(Some(Value::String("webster".to_owned()))),
            // A file may bear the name of a source.
            Source::Path(path) if NAMED_SOURCES.iter().any(|name| path.as_os_str() == *name) => {
                &PathBuf::from(".").join(path)
            }
            Source::Path(path) => path,
        };
        Value::try_from(path).map(Some)
    }
}

/// Layers of the largest model, and so stages.
pub(super) const MOST_LAYERS: u32 = 512;

/// `pipeline.stages`: a number, or the coordinator's choice.
pub(super) struct StageCount;

impl StageCount {
    const KIND: WordOr<Whole<u32>> = WordOr("auto", Whole(1..=MOST_LAYERS));
}

impl Kind for StageCount {
    type Value = Stages;

    fn domain(&self) -> String {
        Self::KIND.domain()
    }

    fn read(&self, value: &DeValue<'_>) -> Result<Stages, String> {
        Ok(Self::KIND.read(value)?.map_or(Stages::Auto, Stages::Exactly))
    }

    fn write(&self, value: &Stages) -> Result<Option<Value>, WriteError> {
        Self::KIND.write(&match *value {
            Stages::Auto => None,
            Stages::Exactly(count) => Some(count),
        })
    }
}
