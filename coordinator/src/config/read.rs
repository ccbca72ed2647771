//! A `run.toml` being read: its fields are taken out, and every fault is noted with its line.

use std::collections::{BTreeMap, BTreeSet};

use toml::de::{DeTable, DeValue};

use super::{fault::ConfigFault, kind::Kind, names::unknown_names, section::SectionDoc};

/// A document being read. Whatever is wrong is noted, and the default stands in for it.
pub(super) struct Reading<'a> {
    file: &'a str,
    /// Byte offset of each line's begin.
    lines: Vec<usize>,
    table: DeTable<'a>,
    faults: Vec<ConfigFault>,
    /// Line of every field that was written and asked for, by path.
    written: BTreeMap<String, usize>,
    /// Paths of fields with a fault.
    faulty: BTreeSet<String>,
}

impl<'a> Reading<'a> {
    /// Parses the text of `file`. What is not TOML is noted as a fault of the whole file.
    pub(super) fn new(text: &'a str, file: &'a str) -> Self {
        let lines = std::iter::once(0).chain(text.match_indices('\n').map(|(i, _)| i + 1)).collect();
        let (table, errors) = DeTable::parse_recoverable(text);
        let mut reading = Self {
            file,
            lines,
            table: DeTable::new(),
            faults: Vec::new(),
            written: BTreeMap::new(),
            faulty: BTreeSet::new(),
        };
        // Half a document would give faults that are none.
        if errors.is_empty() {
            reading.table = table.into_inner();
        }
        for error in errors {
            let line = error.span().map(|span| reading.line(span.start));
            let message = format!("is not TOML: {}", error.message().replace('\n', " "));
            reading.push(line, "", message);
        }
        reading
    }

    /// The value of a section's field, or the default where it is left out or faulty.
    pub(super) fn field<K: Kind>(
        &mut self,
        section: &SectionDoc,
        field: &str,
        kind: &K,
        default: K::Value,
    ) -> K::Value {
        let table = match section.name {
            "" => Some(&self.table),
            name => match self.table.get(name).map(|value| value.get_ref()) {
                Some(DeValue::Table(table)) => Some(table),
                _ => None,
            },
        };
        let Some(value) = table.and_then(|table| table.get(field)) else { return default };
        let path = section.path(field);
        let (line, found) = (self.line(value.span().start), kind.read(value.get_ref()));
        self.written.insert(path.clone(), line);
        found.unwrap_or_else(|mut message| {
            if K::QUOTES_DEFAULT {
                let usual = section.default_of(field).map_or_else(|| kind.show(&default), str::to_owned);
                message = format!("{message}; {usual} is usual");
            }
            self.fault(&path, message);
            default
        })
    }

    /// A text in a section, before the fields are taken out; None where there is none. It is not checked here.
    pub(super) fn text(&self, section: &str, field: &str) -> Option<&str> {
        let DeValue::Table(table) = self.table.get(section)?.get_ref() else { return None };
        let DeValue::String(text) = table.get(field)?.get_ref() else { return None };
        Some(text.as_ref()).filter(|text| !text.is_empty())
    }

    /// Notes every section and field whose name is not known.
    pub(super) fn check_names(&mut self, known: &[&SectionDoc]) {
        for unknown in unknown_names(&self.table, known) {
            let line = self.line(unknown.at);
            self.push(Some(line), &unknown.path, unknown.message);
        }
    }

    /// Notes a fault of a field; it gets the field's line if the field is written.
    pub(super) fn fault(&mut self, field: &str, message: String) {
        self.push(self.written.get(field).copied(), field, message);
    }

    /// Notes a fault between fields, at the first of them that is written. Where one of them is faulty by itself there
    /// is nothing to compare, and `fault` is not asked.
    pub(super) fn rule(&mut self, fields: &[&str], fault: impl FnOnce() -> Option<String>) {
        if fields.iter().any(|field| self.faulty.contains(*field)) {
            return;
        }
        if let Some(message) = fault() {
            let written = fields.iter().find(|field| self.written.contains_key(**field));
            if let Some(field) = written.or(fields.first()) {
                self.fault(field, message);
            }
        }
    }

    /// Whether the file has this field; only once it has been read.
    pub(super) fn is_written(&self, field: &str) -> bool {
        self.written.contains_key(field)
    }

    /// `value` if nothing was wrong.
    ///
    /// # Errors
    /// All faults, in the order of the lines.
    pub(super) fn finish<T>(mut self, value: T) -> Result<T, Vec<ConfigFault>> {
        if self.faults.is_empty() {
            return Ok(value);
        }
        self.faults.sort_by_key(|f| f.line.unwrap_or(usize::MAX));
        Err(self.faults)
    }

    fn push(&mut self, line: Option<usize>, field: &str, message: String) {
        self.faulty.insert(field.to_owned());
        self.faults.push(ConfigFault { file: self.file.to_owned(), line, field: field.to_owned(), message });
    }

    /// Line of a byte, from 1.
    fn line(&self, offset: usize) -> usize {
        self.lines.partition_point(|begin| *begin <= offset).max(1)
    }
}
