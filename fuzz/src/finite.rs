//! Whether a value of any type holds NaN or infinity, as its `Debug` shows it.

use std::fmt::Debug;

/// # Panics
/// When a number in `value` is not finite.
pub(crate) fn assert_finite(value: &impl Debug) {
    let shown = format!("{value:?}");
    assert!(!shows_non_finite(&shown), "a number that is not finite got through: {shown}");
}

/// Looks at what is outside of texts in quotes.
fn shows_non_finite(shown: &str) -> bool {
    let mut outside = String::new();
    let mut characters = shown.chars();
    while let Some(character) = characters.next() {
        if character != '"' {
            outside.push(character);
            continue;
        }
        outside.push(' ');
        while let Some(inside) = characters.next() {
            match inside {
                '"' => break,
                '\\' => drop(characters.next()),
                _ => {}
            }
        }
    }
    let mut words = outside.split(|c: char| !c.is_alphanumeric() && c != '_');
    words.any(|word| word == "NaN" || word == "inf")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_count_and_texts_do_not() {
        for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert!(shows_non_finite(&format!("{:?}", ("a \" b", vec![Some(value)]))), "{value}");
        }
        assert!(!shows_non_finite(&format!("{:?}", ("NaN, \"inf", 1e300, "inf", [0.5_f32]))));
    }
}
