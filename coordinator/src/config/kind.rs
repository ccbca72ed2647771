//! Kinds of values of a field in `run.toml`: each reads a value, writes it, and says in words what is allowed.

use std::{
    fmt::Display,
    ops::{Bound, RangeBounds, RangeInclusive},
    path::PathBuf,
};

use toml::{Value, de::DeValue, ser::Error as WriteError};

use super::likeness::{list, nearest};

/// What a field accepts, and how it is read and written. The three must agree: what `write` gives, `read` takes back.
pub(super) trait Kind {
    /// The value in the program.
    type Value;

    /// Whether a fault of such a field quotes the default.
    const QUOTES_DEFAULT: bool = false;

    /// The values that are allowed, as words that follow "must be".
    fn domain(&self) -> String;

    /// The value of a TOML value.
    ///
    /// # Errors
    /// A sentence about what is wrong, without the field's name.
    fn read(&self, value: &DeValue<'_>) -> Result<Self::Value, String>;

    /// The TOML value of a value; None where the field is left out for it.
    ///
    /// # Errors
    /// A path that is not UTF-8.
    fn write(&self, value: &Self::Value) -> Result<Option<Value>, WriteError>;

    /// A value for a person to read.
    fn show(&self, value: &Self::Value) -> String {
        match self.write(value) {
            Ok(Some(value)) => value.to_string(),
            Ok(None) => "left out".to_owned(),
            Err(error) => error.to_string(),
        }
    }

    /// The fault of a value outside the domain.
    fn outside(&self) -> String {
        format!("must be {}", self.domain())
    }
}

/// The domain of a kind of values of type T, which settles the type of number literals in it.
pub(super) fn domain_of<T, K: Kind<Value = T>>(kind: &K) -> String {
    kind.domain()
}

/// A whole number in a range. In TOML it may be decimal, hexadecimal, octal or binary.
pub(super) struct Whole<N>(pub RangeInclusive<N>);

impl<N: Copy + Display + PartialOrd + TryFrom<i128> + Into<u64>> Kind for Whole<N> {
    type Value = N;

    fn domain(&self) -> String {
        format!("a whole number from {} to {}", self.0.start(), self.0.end())
    }

    fn read(&self, value: &DeValue<'_>) -> Result<N, String> {
        let number = integer(value).and_then(|n| N::try_from(n).ok());
        number.filter(|n| self.0.contains(n)).ok_or_else(|| self.outside())
    }

    fn write(&self, value: &N) -> Result<Option<Value>, WriteError> {
        Value::try_from(Into::<u64>::into(*value)).map(Some)
    }
}

/// A finite number between two bounds. A whole number in TOML is one too, in any of its notations.
pub(super) struct Number {
    bounds: (Bound<f64>, Bound<f64>),
    unit: &'static str,
}

impl Number {
    /// Above 0.
    pub(super) const POSITIVE: Self = Self { bounds: (Bound::Excluded(0.0), Bound::Unbounded), unit: "" };
    /// 0 or above.
    pub(super) const NOT_NEGATIVE: Self = Self { bounds: (Bound::Included(0.0), Bound::Unbounded), unit: "" };

    /// From `low` to `high`, both included.
    pub(super) const fn within(low: f64, high: f64) -> Self {
        Self { bounds: (Bound::Included(low), Bound::Included(high)), unit: "" }
    }

    /// From `low`, included, to `high`, excluded.
    pub(super) const fn below(low: f64, high: f64) -> Self {
        Self { bounds: (Bound::Included(low), Bound::Excluded(high)), unit: "" }
    }

    /// Above `low` and at most `high`.
    pub(super) const fn above(low: f64, high: f64) -> Self {
        Self { bounds: (Bound::Excluded(low), Bound::Included(high)), unit: "" }
    }

    /// Seconds from `low` to `high`, both included.
    pub(super) const fn seconds(low: f64, high: f64) -> Self {
        Self { bounds: (Bound::Included(low), Bound::Included(high)), unit: " of seconds" }
    }
}

impl Kind for Number {
    type Value = f64;

    const QUOTES_DEFAULT: bool = true;

    fn domain(&self) -> String {
        use Bound::{Excluded, Included, Unbounded};
        let range = match self.bounds {
            (Unbounded, Unbounded) => String::new(),
            (Included(low), Included(high)) => format!(" from {low} to {high}"),
            (Included(low), Excluded(high)) => format!(" from {low} to below {high}"),
            (Included(low), Unbounded) => format!(" of at least {low}"),
            (Excluded(low), Included(high)) => format!(" above {low} and at most {high}"),
            (Excluded(low), Excluded(high)) => format!(" above {low} and below {high}"),
            (Excluded(low), Unbounded) => format!(" above {low}"),
            (Unbounded, Included(high)) => format!(" of at most {high}"),
            (Unbounded, Excluded(high)) => format!(" below {high}"),
        };
        format!("a number{}{range}", self.unit)
    }

    fn read(&self, value: &DeValue<'_>) -> Result<f64, String> {
        let number = match value {
            DeValue::Float(float) => float.as_str().parse().ok(),
            value => integer(value).map(|n| n as f64),
        };
        number.filter(|n: &f64| n.is_finite() && self.bounds.contains(n)).ok_or_else(|| self.outside())
    }

    fn write(&self, value: &f64) -> Result<Option<Value>, WriteError> {
        Value::try_from(value).map(Some)
    }

    fn show(&self, value: &f64) -> String {
        // As people write a small rate: 3e-3 and not 0.003.
        if *value != 0.0 && value.abs() < 0.01 { format!("{value:e}") } else { value.to_string() }
    }
}

/// `true` or `false`.
pub(super) struct Flag;

impl Kind for Flag {
    type Value = bool;

    fn domain(&self) -> String {
        "true or false, without quotes".to_owned()
    }

    fn read(&self, value: &DeValue<'_>) -> Result<bool, String> {
        match value {
            DeValue::Boolean(flag) => Ok(*flag),
            _ => Err(self.outside()),
        }
    }

    fn write(&self, value: &bool) -> Result<Option<Value>, WriteError> {
        Ok(Some(Value::Boolean(*value)))
    }
}

/// One of some names, each with the value it stands for.
pub(super) struct Choice<T: 'static>(pub &'static [(&'static str, T)]);

impl<T: Copy + PartialEq> Kind for Choice<T> {
    type Value = T;

    fn domain(&self) -> String {
        let names: Vec<String> = self.0.iter().map(|(name, _)| format!("\"{name}\"")).collect();
        format!("one of {}", names.join(", "))
    }

    fn read(&self, value: &DeValue<'_>) -> Result<T, String> {
        let text = text(value)?;
        let names: Vec<&str> = self.0.iter().map(|(name, _)| *name).collect();
        let found = self.0.iter().find(|(name, _)| *name == text).map(|(_, value)| *value);
        found.ok_or_else(|| match nearest(text, &names) {
            Some(near) => format!("there is no \"{text}\"; did you mean \"{near}\"?"),
            None => format!("there is no \"{text}\"; choose one of {}", list(&names)),
        })
    }

    fn write(&self, value: &T) -> Result<Option<Value>, WriteError> {
        let name = self.0.iter().find(|(_, choice)| choice == value).map(|(name, _)| *name);
        Ok(name.map(|name| Value::String(name.to_owned())))
    }
}

/// A path to a file or folder, not empty; what it is for, in words.
pub(super) struct Path(pub &'static str);

impl Kind for Path {
    type Value = PathBuf;

    fn domain(&self) -> String {
        self.0.to_owned()
    }

    fn read(&self, value: &DeValue<'_>) -> Result<PathBuf, String> {
        match text(value)? {
            "" => Err(self.outside()),
            path => Ok(PathBuf::from(path)),
        }
    }

    fn write(&self, value: &PathBuf) -> Result<Option<Value>, WriteError> {
        Value::try_from(value).map(Some)
    }
}

/// A value, or none where the field is left out.
pub(super) struct Optional<K>(pub K);

impl<K: Kind> Kind for Optional<K> {
    type Value = Option<K::Value>;

    const QUOTES_DEFAULT: bool = K::QUOTES_DEFAULT;

    fn domain(&self) -> String {
        format!("{}, or left out", self.0.domain())
    }

    fn read(&self, value: &DeValue<'_>) -> Result<Self::Value, String> {
        self.0.read(value).map(Some)
    }

    fn write(&self, value: &Self::Value) -> Result<Option<Value>, WriteError> {
        value.as_ref().map_or(Ok(None), |value| self.0.write(value))
    }
}

/// A word that leaves the choice to the coordinator (None), or a value.
pub(super) struct WordOr<K>(pub &'static str, pub K);

impl<K: Kind> Kind for WordOr<K> {
    type Value = Option<K::Value>;

    fn domain(&self) -> String {
        format!("\"{}\" or {}", self.0, self.1.domain())
    }

    fn read(&self, value: &DeValue<'_>) -> Result<Self::Value, String> {
        match value {
            DeValue::String(word) if word == self.0 => Ok(None),
            value => self.1.read(value).map(Some).map_err(|_| self.outside()),
        }
    }

    fn write(&self, value: &Self::Value) -> Result<Option<Value>, WriteError> {
        match value {
            None => Ok(Some(Value::String(self.0.to_owned()))),
            Some(value) => self.1.write(value),
        }
    }
}

/// The text of a TOML string.
///
/// # Errors
/// A sentence, for any other value.
pub(super) fn text<'v>(value: &'v DeValue<'_>) -> Result<&'v str, String> {
    match value {
        DeValue::String(text) => Ok(text),
        _ => Err("must be text in quotes".to_owned()),
    }
}

/// A TOML integer in any notation (`16`, `0x10`, `0o20`, `0b10000`); None for other values and beyond 128 bits.
fn integer(value: &DeValue<'_>) -> Option<i128> {
    match value {
        DeValue::Integer(i) => i128::from_str_radix(i.as_str(), i.radix()).ok(),
        _ => None,
    }
}
