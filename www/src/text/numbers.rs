//! Numbers as people read them: with a unit, and no more digits than mean something.

/// What stands for a number that is not known.
pub(crate) const NONE: &str = "–";

/// 1234567 as "1,234,567".
pub(crate) fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// 1234567 as "1.23 million".
pub(crate) fn rough(n: u64) -> String {
    let n = n as f64;
    match n {
        _ if n >= 1e9 => format!("{} billion", digits(n / 1e9)),
        _ if n >= 1e6 => format!("{} million", digits(n / 1e6)),
        _ if n >= 1e4 => format!("{} thousand", digits(n / 1e3)),
        _ => count(n as u64),
    }
}

/// "1 layer", "2 layers".
pub(crate) fn plural(n: u64, one: &str, many: &str) -> String {
    format!("{} {}", count(n), if n == 1 { one } else { many })
}

/// A size in decimal units: "1.23 MB".
pub(crate) fn bytes(n: u64) -> String {
    let n = n as f64;
    match n {
        _ if n >= 1e9 => format!("{} GB", digits(n / 1e9)),
        _ if n >= 1e6 => format!("{} MB", digits(n / 1e6)),
        _ if n >= 1e3 => format!("{} kB", digits(n / 1e3)),
        _ => format!("{n:.0} B"),
    }
}

/// A duration that is measured: "840 µs", "12.4 ms", "1.52 s", "3 min 5 s".
pub(crate) fn seconds(s: f64) -> String {
    match s {
        _ if !s.is_finite() || s < 0.0 => NONE.to_owned(),
        _ if s == 0.0 => "0 ms".to_owned(),
        _ if s < 0.001 => format!("{} µs", digits(s * 1e6)),
        _ if s < 0.9995 => format!("{} ms", digits(s * 1e3)),
        _ if s < 59.95 => format!("{} s", digits(s)),
        _ => about(s),
    }
}

/// A duration that is counted: "12 s", "3 min 5 s", "1 h 4 min", "2 days 3 h".
pub(crate) fn about(s: f64) -> String {
    let s = s.round().max(0.0) as u64;
    let (minutes, hours, days) = (s / 60, s / 3600, s / 86400);
    match s {
        0..60 => format!("{s} s"),
        60..600 if !s.is_multiple_of(60) => format!("{minutes} min {} s", s % 60),
        60..3600 => format!("{minutes} min"),
        3600..86400 if !minutes.is_multiple_of(60) => format!("{hours} h {} min", minutes % 60),
        3600..86400 => format!("{hours} h"),
        _ => format!("{} {} h", plural(days, "day", "days"), hours % 24),
    }
}

/// A loss in nats: three decimals are about what one step changes.
pub(crate) fn loss(nats: f64) -> String {
    if nats.is_finite() { format!("{nats:.3}") } else { "not a number".to_owned() }
}

/// Tokens per second, without the unit.
pub(crate) fn rate(r: f64) -> String {
    if r >= 1000.0 { count(r.round() as u64) } else { digits(r) }
}

/// A share of 1 as "86 %".
pub(crate) fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// A strength of noise, the standard deviation of what is added: "0.05", "1.6", "10".
pub(crate) fn noise(sigma: f64) -> String {
    match sigma {
        s if s >= 9.95 => format!("{s:.0}"),
        s if s >= 0.095 => format!("{s:.1}"),
        s => format!("{s:.3}"),
    }
}

/// A speed of data, given in bytes a second: "0.8 Mbit/s", "12 Mbit/s", "2.7 Gbit/s".
pub(crate) fn bit_rate(bytes_per_second: f64) -> String {
    match bytes_per_second * 8.0 {
        bits if !bits.is_finite() || bits < 0.0 => NONE.to_owned(),
        bits if bits >= 999.5e6 => format!("{:.1} Gbit/s", bits / 1e9),
        bits if bits >= 9.95e6 => format!("{:.0} Mbit/s", bits / 1e6),
        bits => format!("{:.1} Mbit/s", bits / 1e6),
    }
}

/// Three significant digits, no exponent.
fn digits(x: f64) -> String {
    match x.abs() {
        a if a >= 99.95 || a == 0.0 => format!("{x:.0}"),
        a if a >= 9.995 => format!("{x:.1}"),
        _ => format!("{x:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_grouped() {
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(1000), "1,000");
        assert_eq!(count(1234567), "1,234,567");
        assert_eq!(rough(9999), "9,999");
        assert_eq!(rough(812_345), "812 thousand");
        assert_eq!(rough(1_234_567), "1.23 million");
        assert_eq!(plural(1, "layer", "layers"), "1 layer");
        assert_eq!(plural(0, "layer", "layers"), "0 layers");
    }

    #[test]
    fn durations_have_the_unit_that_fits() {
        assert_eq!(seconds(0.00084), "840 µs");
        assert_eq!(seconds(0.0124), "12.4 ms");
        assert_eq!(seconds(0.9996), "1.00 s");
        assert_eq!(seconds(1.523), "1.52 s");
        assert_eq!(seconds(185.0), "3 min 5 s");
        assert_eq!(seconds(f64::NAN), "–");
        assert_eq!(about(59.6), "1 min");
        assert_eq!(about(3840.0), "1 h 4 min");
        assert_eq!(about(90000.0), "1 day 1 h");
    }

    #[test]
    fn noise_has_the_digits_that_tell_ranges_apart() {
        let said = [10.0, 4.29, 1.0, 0.4, 0.002].map(noise);
        assert_eq!(said, ["10", "4.3", "1.0", "0.4", "0.002"]);
    }

    #[test]
    fn speeds_of_data_have_the_unit_that_fits() {
        let said = [100_000.0, 1_500_000.0, 124.9e6, 343.5e6, f64::NAN].map(bit_rate);
        assert_eq!(said, ["0.8 Mbit/s", "12 Mbit/s", "999 Mbit/s", "2.7 Gbit/s", "–"]);
    }

    #[test]
    fn bytes_are_decimal() {
        assert_eq!(bytes(999), "999 B");
        assert_eq!(bytes(1_234_000), "1.23 MB");
        assert_eq!(bytes(12_340_000), "12.3 MB");
    }
}
