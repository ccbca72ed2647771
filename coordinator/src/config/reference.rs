//! The reference of all fields, `docs/run-toml.md`, made from the fields themselves.

use super::{choices::ModeName, run_config::RunConfig, section::SectionDoc};

const HEAD: &str = "\
# run.toml

All fields of the file that describes a run, made from the declarations in `coordinator/src/config`. Every field may be
left out. A field that is not here, stands in another section or belongs to the other mode is refused, with its line and
what to write instead; `cohort validate run.toml` checks a file without running it.

Whole numbers may be written as `1000`, `1_000`, `0x3e8`, `0o1750` or `0b1111101000`, and stand for numbers too. The file
is UTF-8, with or without a byte order mark.
";

/// The page, in Markdown.
///
/// # Errors
/// None in practice: only a path that is not UTF-8 cannot be written, and the default run has none.
pub fn reference() -> Result<String, toml::ser::Error> {
    let written = RunConfig::default().write()?;
    let mut page = HEAD.to_owned();
    for (section, values) in RunConfig::SECTIONS.iter().zip(written) {
        page += &heading(section);
        page += "\n| field | value | default | meaning |\n|---|---|---|---|\n";
        for field in section.fields {
            let value = values.iter().find(|value| value.field == field.name);
            let default = match (field.default, value) {
                (Some(words), _) => words.to_owned(),
                (None, Some(value)) => format!("`{}`", value.shown),
                (None, None) => String::new(),
            };
            let cells = [format!("`{}`", field.name), (field.domain)(), default, sentence(field.doc)];
            page += &format!("| {} |\n", cells.map(|cell| cell.replace('|', "\\|")).join(" | "));
        }
    }
    Ok(page)
}

fn heading(section: &SectionDoc) -> String {
    let name = match section.name {
        "" => "Top of the file".to_owned(),
        name => format!("`[{name}]`"),
    };
    let mode = match section.modes {
        modes if modes == ModeName::ANY => "",
        modes if modes == ModeName::BLOCKS => " In block mode only.",
        modes if modes == ModeName::TRAINS => " Not with mode = \"serve\".",
        _ => " Not in block mode.",
    };
    format!("\n## {name}\n\n{}{mode}\n", sentence(section.doc))
}

/// A doc comment of several lines in one.
fn sentence(doc: &str) -> String {
    doc.split_whitespace().collect::<Vec<_>>().join(" ")
}
