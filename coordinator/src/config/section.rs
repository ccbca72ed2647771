//! A section of `run.toml`, declared once: [`section!`] makes of each field its place in the struct, its doc, its
//! reader, its written form and its row in the reference.

use super::{choices::ModeName, kind::Kind};

/// What is known of a section without reading a file.
#[derive(Clone, Copy)]
pub(super) struct SectionDoc {
    /// Its name; "" for the top of the file.
    pub name: &'static str,
    /// What it is for.
    pub doc: &'static str,
    /// The modes it belongs to.
    pub modes: &'static [ModeName],
    /// Its fields, in the order of the reference.
    pub fields: &'static [FieldDoc],
}

impl SectionDoc {
    /// Whether it belongs to a mode.
    pub(super) fn is_of(&self, mode: ModeName) -> bool {
        self.modes.contains(&mode)
    }

    /// Whether a field has this name.
    pub(super) fn has(&self, field: &str) -> bool {
        self.fields.iter().any(|f| f.name == field)
    }

    /// A field's name with its section's in front: `training.steps`, `name`.
    pub(super) fn path(&self, field: &str) -> String {
        if self.name.is_empty() { field.to_owned() } else { format!("{}.{field}", self.name) }
    }

    /// A field's default in words, if it has words.
    pub(super) fn default_of(&self, field: &str) -> Option<&'static str> {
        self.fields.iter().find(|f| f.name == field)?.default
    }
}

/// What is known of a field without reading a file.
pub(super) struct FieldDoc {
    /// Its name in its section.
    pub name: &'static str,
    /// What it means.
    pub doc: &'static str,
    /// The default in words, where a value does not say it; None: the value in the default run, see [`Written`].
    pub default: Option<&'static str>,
    /// The values it takes, in words.
    pub domain: fn() -> String,
}

/// A field with its value, on the way to a file.
pub(super) struct Written {
    /// The field's name in its section.
    pub field: &'static str,
    /// The value for a person to read.
    pub shown: String,
    /// The value in the file; None: the field is left out.
    pub value: Option<toml::Value>,
}

impl Written {
    /// A field of this kind with this value.
    ///
    /// # Errors
    /// A path that is not UTF-8.
    pub(super) fn new<T, K: Kind<Value = T>>(
        field: &'static str,
        kind: &K,
        value: &T,
    ) -> Result<Self, toml::ser::Error> {
        Ok(Self { field, shown: kind.show(value), value: kind.write(value)? })
    }
}

/// The name in a file of a field whose name in Rust may have to be a raw identifier, such as `r#where`.
pub(super) const fn field_name(identifier: &'static str) -> &'static str {
    match identifier.as_bytes() {
        [b'r', b'#', ..] => identifier.split_at(2).1,
        _ => identifier,
    }
}

/// Declares a section:
///
/// ```text
/// section! {
///     /// What the section is for.
///     "name", ModeName::ANY => pub struct NameConfig(other: &OtherConfig) {
///         shorthand {
///             /// A key that is read, gives the fields below their defaults, and is not kept.
///             preset: Preset = FIRST, "the first" => Choice(PRESETS);
///         }
///         /// What the field means.
///         field: u32 = 20 => Whole(1..=100);
///         /// One whose default depends on others, in code and in words.
///         second: u32 = other.count.min(field), "the smaller of other.count and field" => Whole(1..=100);
///     }
/// }
/// ```
///
/// The second argument is the modes that the section belongs to. The expressions of defaults see the
/// fields above them and what stands in the parentheses. Of it come:
///
/// * the struct, with a public field for each entry outside of `shorthand`;
/// * `NameConfig::DOC`, from which names are checked and `docs/run-toml.md` is made;
/// * `NameConfig::read(reading, other)`, which takes the fields out of a file and notes faults;
/// * `NameConfig::write(&self)`, the values for a file that `read` gives back.
///
/// What must hold between fields stands in `rules.rs` and `block_rules.rs`.
macro_rules! section {
    (
        $(#[doc = $about:literal])+
        $section:literal, $modes:expr => $visibility:vis struct $config:ident($($other:ident: $other_type:ty),*) {
            $(shorthand {
                $(#[doc = $key_doc:literal])+
                $key:ident: $key_type:ty = $key_default:expr, $key_words:literal => $key_kind:expr;
            })?
            $(
                $(#[doc = $doc:literal])+
                $field:ident: $type:ty = $default:expr $(, $words:literal)? => $kind:expr;
            )+
        }
    ) => {
        $(#[doc = $about])+
        #[derive(Debug, Clone, PartialEq)]
        $visibility struct $config {
            $($(#[doc = $doc])+ pub $field: $type,)+
        }

        impl $config {
            pub(super) const DOC: $crate::config::section::SectionDoc = $crate::config::section::SectionDoc {
                name: $section,
                doc: concat!($($about),+),
                modes: $modes,
                fields: &[
                    $($crate::config::section::FieldDoc {
                        name: stringify!($key),
                        doc: concat!($($key_doc),+),
                        default: Some($key_words),
                        domain: || $crate::config::kind::domain_of::<$key_type, _>(&const { $key_kind }),
                    },)?
                    $($crate::config::section::FieldDoc {
                        name: $crate::config::section::field_name(stringify!($field)),
                        doc: concat!($($doc),+),
                        default: [$(Some($words),)? None][0],
                        domain: || $crate::config::kind::domain_of::<$type, _>(&const { $kind }),
                    },)+
                ],
            };

            /// Takes the section's fields out of a document; what is wrong is noted there.
            pub(super) fn read(
                reading: &mut $crate::config::read::Reading<'_>,
                $($other: $other_type),*
            ) -> Self {
                $(let $key: $key_type =
                    reading.field(&Self::DOC, stringify!($key), &const { $key_kind }, $key_default);)?
                $(let $field: $type = reading.field(&Self::DOC, $crate::config::section::field_name(stringify!($field)), &const { $kind }, $default);)+
                Self { $($field),+ }
            }

            /// The values for a file.
            ///
            /// # Errors
            /// A path that is not UTF-8.
            pub(super) fn write(&self) -> Result<Vec<$crate::config::section::Written>, toml::ser::Error> {
                Ok(vec![
                    $($crate::config::section::Written::new(
                        $crate::config::section::field_name(stringify!($field)),
                        &const { $kind },
                        &self.$field,
                    )?,)+
                ])
            }
        }
    };
}

pub(super) use section;
