//! What every field that comes from the other side must satisfy before anybody looks at it.
//!
//! A struct declared with `checked_struct!` names a rule beside each field, so a field without a rule does not
//! compile, and [`any`] does not take floating-point numbers: NaN and infinity cannot be forgotten either.

use crate::blob::{BlobHash, BlobRef};

/// A value of a message that can be held against its rules.
pub trait Checked {
    /// Holds every field against its rule.
    ///
    /// # Errors
    /// The first field that breaks its rule.
    fn check(&self) -> Result<(), FieldError>;
}

/// A field breaks its rule.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{field} {problem}")]
pub struct FieldError {
    /// `Message.field`, or `Message.field.part`.
    pub field: String,
    /// What is wrong, and what to send instead.
    pub problem: Problem,
}

/// What is wrong with a value.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum Problem {
    /// A text, a list or a count is too large.
    #[error("has {actual} {unit}: at most {limit} are allowed")]
    TooMany {
        /// How many there are.
        actual: u64,
        /// How many there may be.
        limit: u64,
        /// What is counted: characters, entries or bytes.
        unit: &'static str,
    },
    /// A whole number is beyond what any run can have.
    #[error("is {value}: at most {limit} is possible")]
    TooLarge {
        /// The number.
        value: u64,
        /// The largest possible one.
        limit: u64,
    },
    /// A number is NaN, infinite, or outside the possible range.
    #[error("is {}: send a finite number from {} to {}", short(*.value), short(*.least), short(*.most))]
    OutOfRange {
        /// The number.
        value: f64,
        /// The least possible one.
        least: f64,
        /// The largest possible one.
        most: f64,
    },
}

/// A number in few characters: the largest ones have three hundred digits.
fn short(value: f64) -> String {
    let plain = value == 0.0 || (1e-4..1e9).contains(&value.abs());
    if plain { value.to_string() } else { format!("{value:e}") }
}

/// The outcome of a rule: the problem, and the path of the field below the one the rule stands beside.
pub type RuleResult = Result<(), FieldError>;

impl From<Problem> for FieldError {
    fn from(problem: Problem) -> Self {
        Self { field: String::new(), problem }
    }
}

impl FieldError {
    /// The same error seen from outside `name`, a struct or a field of one.
    #[must_use]
    pub fn within(mut self, name: &str) -> Self {
        self.field = if self.field.is_empty() { name.into() } else { format!("{name}.{}", self.field) };
        self
    }
}

/// Values of which every one is possible. Deliberately not implemented for floating-point numbers.
pub trait Discrete {}

macro_rules! discrete {
    ($($type:ty),* $(,)?) => { $(impl $crate::checked::Discrete for $type {})* };
}

discrete!(u8, u32, u64, bool, BlobHash);

/// Every value is possible.
///
/// # Errors
/// None.
pub fn any<T: Discrete>(_: &T) -> RuleResult {
    Ok(())
}

/// A struct or enum with rules of its own.
///
/// # Errors
/// As its own check.
pub fn nested<T: Checked>(value: &T) -> RuleResult {
    value.check()
}

/// A value that may be absent.
pub fn optional<T>(rule: impl Fn(&T) -> RuleResult) -> impl Fn(&Option<T>) -> RuleResult {
    move |value| value.as_ref().map_or(Ok(()), &rule)
}

/// A text of at most `limit` characters.
pub fn text(limit: usize) -> impl Fn(&String) -> RuleResult {
    move |text| {
        // A character takes at least one byte: most texts need no counting.
        if text.len() <= limit {
            return Ok(());
        }
        fits(text.chars().count() as u64, limit as u64, "characters")
    }
}

/// A list of at most `limit` entries, each of which satisfies `rule`.
pub fn list<T>(limit: usize, rule: impl Fn(&T) -> RuleResult) -> impl Fn(&Vec<T>) -> RuleResult {
    move |list| {
        fits(list.len() as u64, limit as u64, "entries")?;
        list.iter().try_for_each(&rule)
    }
}

/// At most so many bytes that follow the header.
pub fn padding(limit: usize) -> impl Fn(&u32) -> RuleResult {
    move |bytes| fits(u64::from(*bytes), limit as u64, "bytes")
}

/// A whole number of at most `limit`.
pub fn at_most<T: Copy + Into<u64>>(limit: u64) -> impl Fn(&T) -> RuleResult {
    move |value| {
        let value = (*value).into();
        if value <= limit { Ok(()) } else { Err(Problem::TooLarge { value, limit }.into()) }
    }
}

/// A number that counts epochs, steps, rounds or the like: far below overflow, and exact in JSON.
///
/// # Errors
/// [`Problem::TooLarge`] beyond 2^53.
pub fn counter(value: &u64) -> RuleResult {
    at_most(1 << 53)(value)
}

/// A finite number from `least` to `most`.
pub fn within<T: Copy + Into<f64>>(least: f64, most: f64) -> impl Fn(&T) -> RuleResult {
    move |value| {
        let value = (*value).into();
        // NaN is in no range.
        if (least..=most).contains(&value) {
            Ok(())
        } else {
            Err(Problem::OutOfRange { value, least, most }.into())
        }
    }
}

fn fits(actual: u64, limit: u64, unit: &'static str) -> RuleResult {
    if actual <= limit { Ok(()) } else { Err(Problem::TooMany { actual, limit, unit }.into()) }
}

impl Checked for BlobRef {
    fn check(&self) -> RuleResult {
        at_most(crate::limits::BLOB_BYTES)(&self.bytes).map_err(|error| error.within("bytes"))
    }
}

/// Declares a struct with the rule of each field beside it: `pub name: Type => rule`.
macro_rules! checked_struct {
    (
        $(#[$outer:meta])*
        pub struct $name:ident {
            $( $(#[$inner:meta])* pub $field:ident : $type:ty => $rule:expr ),* $(,)?
        }
    ) => {
        $(#[$outer])*
        pub struct $name {
            $( $(#[$inner])* pub $field: $type, )*
        }

        impl $crate::checked::Checked for $name {
            fn check(&self) -> $crate::checked::RuleResult {
                $( ($rule)(&self.$field).map_err(|error: $crate::checked::FieldError| {
                    error.within(stringify!($field))
                })?; )*
                Ok(())
            }
        }
    };
}

pub(crate) use checked_struct;
pub(crate) use discrete;
