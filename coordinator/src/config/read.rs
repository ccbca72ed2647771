//! Take fields out of a TOML document, noting every fault with its line.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::RangeInclusive,
};

use toml::de::{DeTable, DeValue};

use super::fault::ConfigFault;

/// Names of a section's fields. The section "" is the top of the file.
pub type Known = (&'static str, &'static [&'static str]);

/// A document being read. Whatever is wrong is noted, and the default stands in for it.
pub struct Reading<'a> {
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
    pub fn new(text: &'a str, file: &'a str) -> Self {
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

    /// Note a fault of a field; it gets the field's line if the field is written.
    pub fn fault(&mut self, field: &str, message: String) {
        self.push(self.written.get(field).copied(), field, message);
    }

    /// Note a fault between fields at the first of them that is written.
    pub fn fault_between(&mut self, fields: &[&str], message: String) {
        let written = fields.iter().find(|f| self.written.contains_key(**f));
        if let Some(field) = written.or(fields.first()) {
            self.fault(field, message);
        }
    }

    /// Whether the file has this field; only once it has been asked for.
    pub fn is_written(&self, field: &str) -> bool {
        self.written.contains_key(field)
    }

    /// Whether none of the fields has a fault: only then is it of use to compare them.
    pub fn sound(&self, fields: &[&str]) -> bool {
        fields.iter().all(|f| !self.faulty.contains(*f))
    }

    /// `value` if nothing was wrong, else all faults in the order of the lines.
    pub fn finish<T>(mut self, value: T) -> Result<T, Vec<ConfigFault>> {
        if self.faults.is_empty() {
            return Ok(value);
        }
        self.faults.sort_by_key(|f| f.line.unwrap_or(usize::MAX));
        Err(self.faults)
    }

    /// Note every section and field whose name is not known.
    pub fn check_names(&mut self, known: &[Known]) {
        let sections: Vec<&str> = known.iter().map(|(s, _)| *s).filter(|s| !s.is_empty()).collect();
        let mut faults = Vec::new();
        for (key, value) in &self.table {
            let (name, line) = (key.get_ref().as_ref(), self.line(key.span().start));
            match (known.iter().find(|(s, _)| *s == name && !s.is_empty()), value.get_ref()) {
                (Some((_, fields)), DeValue::Table(table)) => {
                    for key in table.keys() {
                        let field = key.get_ref().as_ref();
                        if !fields.contains(&field) {
                            let words = unknown(field, name, fields, known);
                            faults.push((self.line(key.span().start), format!("{name}.{field}"), words));
                        }
                    }
                }
                (Some(_), _) => {
                    faults.push((
                        line,
                        name.to_owned(),
                        format!("must be a table; write [{name}] on a line of its own"),
                    ));
                }
                (None, DeValue::Table(_) | DeValue::Array(_)) => {
                    let words = match nearest(name, &sections) {
                        Some(near) => format!("unknown section; did you mean [{near}]?"),
                        None => format!("unknown section; there are {}", list(&sections)),
                    };
                    faults.push((line, name.to_owned(), words));
                }
                (None, _) => {
                    let fields = known.iter().find(|(s, _)| s.is_empty()).map_or(&[][..], |(_, f)| *f);
                    if !fields.contains(&name) {
                        faults.push((line, name.to_owned(), unknown(name, "", fields, known)));
                    }
                }
            }
        }
        for (line, field, words) in faults {
            self.push(Some(line), &field, words);
        }
    }

    /// A whole number within `range`.
    pub fn whole(&mut self, field: &str, default: u64, range: RangeInclusive<u64>) -> u64 {
        self.take(field, default, |value| {
            let number = match value {
                DeValue::Integer(i) => i128::from_str_radix(i.as_str(), i.radix()).ok(),
                _ => None,
            };
            let found = number.and_then(|n| u64::try_from(n).ok()).filter(|n| range.contains(n));
            found.ok_or_else(|| format!("must be a whole number from {} to {}", range.start(), range.end()))
        })
    }

    /// A whole number within `range`.
    pub fn count(&mut self, field: &str, default: u32, range: RangeInclusive<u32>) -> u32 {
        let wide = u64::from(*range.start())..=u64::from(*range.end());
        self.whole(field, u64::from(default), wide) as u32
    }

    /// A number that is `good`; `words` say which are.
    pub fn number(&mut self, field: &str, default: f64, good: impl Fn(f64) -> bool, words: &str) -> f64 {
        self.take(field, default, |value| {
            let number: Option<f64> = match value {
                DeValue::Float(f) => f.as_str().parse().ok(),
                DeValue::Integer(i) if i.radix() == 10 => i.as_str().parse().ok(),
                _ => None,
            };
            number.filter(|n| n.is_finite() && good(*n)).ok_or_else(|| format!("must be a number {words}"))
        })
    }

    pub fn boolean(&mut self, field: &str, default: bool) -> bool {
        self.take(field, default, |value| match value {
            DeValue::Boolean(b) => Ok(*b),
            _ => Err("must be true or false, without quotes".to_owned()),
        })
    }

    /// Text that `parse` understands.
    pub fn text<T>(&mut self, field: &str, default: T, parse: impl Fn(&str) -> Result<T, String>) -> T {
        self.take(field, default, |value| match value {
            DeValue::String(s) => parse(s),
            _ => Err("must be text in quotes".to_owned()),
        })
    }

    /// One of some names.
    pub fn choice<T: Clone>(&mut self, field: &str, default: T, options: &[(&str, T)]) -> T {
        let names: Vec<&str> = options.iter().map(|(name, _)| *name).collect();
        self.text(field, default, |text| {
            let found = options.iter().find(|(name, _)| *name == text).map(|(_, value)| value.clone());
            found.ok_or_else(|| match nearest(text, &names) {
                Some(near) => format!("there is no \"{text}\"; did you mean \"{near}\"?"),
                None => format!("there is no \"{text}\"; choose one of {}", list(&names)),
            })
        })
    }

    /// The field at `path` through `read`, or the default if it is left out or faulty.
    pub fn take<T>(
        &mut self,
        path: &str,
        default: T,
        read: impl FnOnce(&DeValue<'a>) -> Result<T, String>,
    ) -> T {
        let value = match path.split_once('.') {
            None => self.table.get(path),
            Some((section, field)) => match self.table.get(section).map(|v| v.get_ref()) {
                Some(DeValue::Table(table)) => table.get(field),
                _ => None,
            },
        };
        let Some(value) = value else { return default };
        self.written.insert(path.to_owned(), self.line(value.span().start));
        match read(value.get_ref()) {
            Ok(found) => found,
            Err(message) => {
                self.fault(path, message);
                default
            }
        }
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

fn unknown(field: &str, section: &str, fields: &[&str], known: &[Known]) -> String {
    if let Some((other, _)) = known.iter().find(|(s, fields)| *s != section && fields.contains(&field)) {
        return match *other {
            "" => "unknown field here; move it to the top of the file, above all sections".to_owned(),
            other => format!("unknown field here; move it to [{other}]"),
        };
    }
    match nearest(field, fields) {
        Some(near) => format!("unknown field; did you mean `{near}`?"),
        None if section.is_empty() => {
            format!("unknown field; at the top of the file there is {}", list(fields))
        }
        None => format!("unknown field; [{section}] has {}", list(fields)),
    }
}

/// The name most like `word`, if one is alike enough to be meant.
fn nearest<'n>(word: &str, names: &[&'n str]) -> Option<&'n str> {
    let likeness = |name: &str| strsim::jaro_winkler(word, name);
    let best = names.iter().copied().max_by(|a, b| likeness(a).total_cmp(&likeness(b)))?;
    (likeness(best) > 0.8).then_some(best)
}

fn list(names: &[&str]) -> String {
    names.join(", ")
}
