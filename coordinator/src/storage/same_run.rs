//! Which fields of `run.toml` may differ from those of the run that is resumed.

use toml::{Table, Value};

use crate::config::{ModeName, RunConfig};

/// Fields and sections that may always differ: none of them decides what the steps already done have computed.
///
/// The data is compared by what it is, see `DataDir::same_data`. A field that is not named here must be as before.
const MAY_DIFFER: [&str; 11] = [
    "name",
    // Its weights are the first snapshot's.
    "model.from",
    "data.source",
    "data.tokenizer_files",
    "training.steps",
    "training.validate_every",
    "training.validation_batches",
    "pipeline",
    "snapshots",
    "session",
    "serving",
];

/// The fields that differ and may not, each with both values, in words; None where there is none.
///
/// # Errors
/// A path that is not UTF-8.
pub(super) fn differences(before: &RunConfig, now: &RunConfig) -> Result<Option<String>, toml::ser::Error> {
    let (old, new) = (fields(before)?, fields(now)?);
    let show = |value: Option<&Value>| value.map_or_else(|| "none".to_owned(), ToString::to_string);
    if before.mode != now.mode {
        // The modes have other sections: they would all be named.
        return Ok(Some(words("mode", &show(old.get("mode")), &show(new.get("mode")))));
    }
    let found: Vec<String> = old
        .keys()
        .chain(new.keys().filter(|name| !old.contains_key(*name)))
        .filter(|name| old.get(*name) != new.get(*name) && !may_differ(name, before, now))
        .map(|name| words(name, &show(old.get(name)), &show(new.get(name))))
        .collect();
    Ok((!found.is_empty()).then(|| found.join(", ")))
}

fn words(field: &str, before: &str, now: &str) -> String {
    format!("{field} ({before} before, {now} now)")
}

fn may_differ(field: &str, before: &RunConfig, now: &RunConfig) -> bool {
    match field {
        // Its default follows from the steps.
        "training.warmup_steps" => before.training.steps != now.training.steps,
        // The manifest knows what was chosen.
        "training.micro_batches" => now.training.micro_batches.is_none(),
        // In block mode it decides which windows a replica reads.
        "session.max_workers" => now.mode != ModeName::Block,
        // Of a round, only the number of steps decides which step comes after it.
        "rounds.local_steps" => false,
        field if field.starts_with("rounds.") => true,
        field => MAY_DIFFER
            .iter()
            .any(|free| field == *free || field.strip_prefix(free).is_some_and(|rest| rest.starts_with('.'))),
    }
}

/// All fields by their path, `training.steps`.
fn fields(config: &RunConfig) -> Result<Table, toml::ser::Error> {
    let text = config.to_toml()?;
    let file: Table = toml::from_str(&text).map_err(<toml::ser::Error as serde::ser::Error>::custom)?;
    let mut fields = Table::new();
    for (name, value) in file {
        match value {
            Value::Table(section) => {
                fields.extend(section.into_iter().map(|(field, value)| (format!("{name}.{field}"), value)));
            }
            value => drop(fields.insert(name, value)),
        }
    }
    Ok(fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn difference(before: &str, now: &str) -> Option<String> {
        let parse = |text: &str| RunConfig::parse(text, "run.toml").unwrap();
        differences(&parse(before), &parse(now)).unwrap()
    }

    #[test]
    fn what_does_not_decide_the_weights_may_change() {
        for now in [
            "training.steps = 80",
            "training.validate_every = 7\ntraining.validation_batches = 9",
            "snapshots.every = 3\nsnapshots.keep = 9",
            "session.lease_seconds = 9\nsession.max_workers = 3",
            "pipeline.stages = 3",
            "data.source = \"elsewhere.txt\"",
            "name = \"renamed\"",
            "training.micro_batches = \"auto\"",
        ] {
            assert_eq!(difference("training.steps = 40", &format!("{now}\n")), None, "{now}");
        }
    }

    #[test]
    fn what_decides_them_is_named_with_both_values() {
        for (now, field) in [
            ("training.seed = 2", "training.seed (1 before, 2 now)"),
            ("training.sequences = 8", "training.sequences (4 before, 8 now)"),
            ("training.context = 32", "training.context (64 before, 32 now)"),
            ("training.micro_batches = 2", "training.micro_batches (4 before, 2 now)"),
            ("training.learning_rate = 0.1", "training.learning_rate (0.003 before, 0.1 now)"),
            ("training.warmup_steps = 3", "training.warmup_steps"),
            ("model.layers = 6", "model.layers (3 before, 6 now)"),
            ("data.tokenizer = \"characters\"", "data.tokenizer"),
            ("data.validation_fraction = 0.2", "data.validation_fraction"),
            ("mode = \"block\"", "mode (\"pipeline\" before, \"block\" now)"),
        ] {
            let found = difference("", now).unwrap_or_default();
            assert!(found.contains(field), "{now}: {found}");
        }
    }

    #[test]
    fn in_block_mode_the_rounds_may_change_except_for_their_steps() {
        let block = "mode = \"block\"\n";
        let difference = |now: &str| difference(block, &format!("{block}{now}"));
        assert_eq!(difference("rounds.delta = \"int8\""), None);
        for field in ["rounds.local_steps = 5", "blocks.count = 1", "session.max_workers = 5"] {
            let name = field.split(' ').next().unwrap();
            assert!(difference(field).is_some_and(|found| found.contains(name)), "{field}");
        }
    }
}
