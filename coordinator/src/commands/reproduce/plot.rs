//! A plot as SVG: places along the bottom, one line of marks with their errors for each series.

use std::fmt::Write;

use super::statistics::Estimate;

pub(super) struct Plot {
    pub y: String,
    pub places: Vec<String>,
    /// Name, and a value for each place that has one.
    pub series: Vec<(String, Vec<Option<Estimate>>)>,
    /// Whether marks are joined.
    pub joined: bool,
}

const WIDTH: f64 = 820.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 190.0;
const TOP: f64 = 24.0;
const BOTTOM: f64 = 56.0;
/// Told apart also by those who see few colours (Okabe and Ito).
const COLOURS: [&str; 8] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000", "#8a7a00"];

impl Plot {
    pub(super) fn svg(&self) -> String {
        let all = || self.series.iter().flat_map(|(_, values)| values.iter().flatten());
        let lowest = all().map(|e| e.mean - e.error).fold(f64::INFINITY, f64::min);
        let highest = all().map(|e| e.mean + e.error).fold(f64::NEG_INFINITY, f64::max);
        let (lowest, highest) =
            if lowest < highest { (lowest, highest) } else { (lowest - 0.5, lowest + 0.5) };
        let margin = 0.06 * (highest - lowest);
        let (lowest, highest) = (lowest - margin, highest + margin);
        let bottom = HEIGHT - BOTTOM;
        let y = |value: f64| bottom - (value - lowest) / (highest - lowest) * (bottom - TOP);
        let room = (WIDTH - LEFT - RIGHT) / self.places.len().max(1) as f64;
        let x = |place: usize, series: usize| {
            let shift =
                if self.joined { 0.5 } else { (series as f64 + 1.0) / (self.series.len() as f64 + 1.0) };
            LEFT + room * (place as f64 + shift)
        };
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" \
             font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
        );
        for tick in 0..=5 {
            let value = lowest + (highest - lowest) * f64::from(tick) / 5.0;
            let _ = writeln!(
                svg,
                "<path d=\"M{LEFT} {0:.1}H{1}\" stroke=\"#ddd\"/><text x=\"{2}\" y=\"{3:.1}\" text-anchor=\"end\">{value:.2}</text>",
                y(value),
                WIDTH - RIGHT,
                LEFT - 6.0,
                y(value) + 4.0
            );
        }
        let _ = writeln!(svg, "<text x=\"{LEFT}\" y=\"14\">{}</text>", escape(&self.y));
        for (place, name) in self.places.iter().enumerate() {
            let low = bottom + 18.0 + 14.0 * (place % 2) as f64;
            let middle = LEFT + room * (place as f64 + 0.5);
            let _ = writeln!(
                svg,
                "<text x=\"{middle:.1}\" y=\"{low}\" text-anchor=\"middle\">{}</text>",
                escape(name)
            );
        }
        for (number, (name, values)) in self.series.iter().enumerate() {
            let colour = COLOURS[number % COLOURS.len()];
            let dash = if number < COLOURS.len() { "none" } else { "5 3" };
            let mut line = String::new();
            for (place, estimate) in values.iter().enumerate() {
                let Some(Estimate { mean, error }) = estimate else { continue };
                let at = x(place, number);
                let _ = write!(line, "{}{at:.1} {:.1}", if line.is_empty() { 'M' } else { 'L' }, y(*mean));
                let _ = writeln!(
                    svg,
                    "<path d=\"M{at:.1} {:.1}V{:.1}\" stroke=\"{colour}\"/><circle cx=\"{at:.1}\" cy=\"{:.1}\" r=\"3.5\" fill=\"{colour}\"/>",
                    y(mean - error),
                    y(mean + error),
                    y(*mean)
                );
            }
            if self.joined {
                let _ = writeln!(
                    svg,
                    "<path d=\"{line}\" fill=\"none\" stroke=\"{colour}\" stroke-dasharray=\"{dash}\"/>"
                );
            }
            let (left, low) = (WIDTH - RIGHT + 14.0, TOP + 8.0 + 18.0 * number as f64);
            let _ = writeln!(
                svg,
                "<path d=\"M{left} {low}h16\" stroke=\"{colour}\" stroke-width=\"3\" stroke-dasharray=\"{dash}\"/><text x=\"{}\" y=\"{}\">{}</text>",
                left + 22.0,
                low + 4.0,
                escape(name)
            );
        }
        svg + "</svg>\n"
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
