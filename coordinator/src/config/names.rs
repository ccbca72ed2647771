//! Whether the names in `run.toml` are known, and what to do about one that is not.

use toml::de::{DeTable, DeValue};

use super::{
    likeness::{list, nearest},
    section::SectionDoc,
};

/// What is wrong with a name: the byte where its key begins, the path of the field or section, and what to do.
pub(super) struct UnknownName {
    pub at: usize,
    pub path: String,
    pub message: String,
}

/// Every section and field whose name is not known. The section "" is the top of the file.
pub(super) fn unknown_names(table: &DeTable<'_>, known: &[&SectionDoc]) -> Vec<UnknownName> {
    let mut unknown = Vec::new();
    let sections: Vec<&str> = known.iter().map(|s| s.name).filter(|name| !name.is_empty()).collect();
    for (key, value) in table {
        let name = key.get_ref().as_ref();
        let mut note = |at, path, message| unknown.push(UnknownName { at, path, message });
        match (known.iter().find(|s| s.name == name && !name.is_empty()), value.get_ref()) {
            (Some(section), DeValue::Table(table)) => {
                for key in table.keys().filter(|key| !section.has(key.get_ref())) {
                    let field = key.get_ref().as_ref();
                    note(key.span().start, format!("{name}.{field}"), about_field(field, section, known));
                }
            }
            (Some(_), _) => {
                let message = format!("must be a table; write [{name}] on a line of its own");
                note(key.span().start, name.to_owned(), message);
            }
            (None, DeValue::Table(_) | DeValue::Array(_)) => {
                let message = match nearest(name, &sections) {
                    Some(near) => format!("unknown section; did you mean [{near}]?"),
                    None => format!("unknown section; there are {}", list(&sections)),
                };
                note(key.span().start, name.to_owned(), message);
            }
            (None, _) => {
                for top in known.iter().filter(|s| s.name.is_empty() && !s.has(name)) {
                    note(key.span().start, name.to_owned(), about_field(name, top, known));
                }
            }
        }
    }
    unknown
}

/// What to do about a field that `section` does not have.
fn about_field(field: &str, section: &SectionDoc, known: &[&SectionDoc]) -> String {
    if let Some(other) = known.iter().find(|s| s.has(field)) {
        return match other.name {
            "" => "unknown field here; move it to the top of the file, above all sections".to_owned(),
            other => format!("unknown field here; move it to [{other}]"),
        };
    }
    let fields: Vec<&str> = section.fields.iter().map(|f| f.name).collect();
    match nearest(field, &fields) {
        Some(near) => format!("unknown field; did you mean `{near}`?"),
        None if section.name.is_empty() => {
            format!("unknown field; at the top of the file there is {}", list(&fields))
        }
        None => format!("unknown field; [{}] has {}", section.name, list(&fields)),
    }
}
