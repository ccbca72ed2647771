//! How the curve looks: uPlot's options, with colours from the style sheet.

use js_sys::{Array, Float64Array, Function, JSON, Reflect};
use protocol::view::CurvePoint;
use serde_json::json;
use wasm_bindgen::JsValue;
use web_sys::HtmlElement;

use super::figure::Figure;
use crate::state::curve::smooth;

/// Points on either side that the bold line is the mean of, as a share of the curve and at most.
const SMOOTH_SHARE: usize = 60;
const SMOOTH_MOST: usize = 40;

/// Beyond this many points the curve has more of them than the screen has pixels, and drawing gets slow.
const MOST_POINTS: usize = 4000;

/// Colours and font of the chart, as custom properties of the element it stands in.
struct Look {
    ink: String,
    grid: String,
    /// Of each line.
    lines: Vec<String>,
}

impl Look {
    fn of(element: &HtmlElement, figure: &Figure) -> Self {
        let style = leptos::prelude::window().get_computed_style(element).ok().flatten();
        let read = |name: &str| {
            let value =
                style.as_ref().and_then(|style| style.get_property_value(name).ok()).unwrap_or_default();
            if value.trim().is_empty() { "#808080".to_owned() } else { value.trim().to_owned() }
        };
        Look {
            ink: read("--ink-2"),
            grid: read("--line"),
            lines: figure.lines.iter().map(|line| read(&format!("--curve-{}", line.colour))).collect(),
        }
    }
}

/// `hover` is called with uPlot at each move of the cursor.
pub(crate) fn options(element: &HtmlElement, hover: &Function, figure: &Figure) -> JsValue {
    let look = Look::of(element, figure);
    // Whole steps: uPlot would also put marks at 2.5.
    let whole: Vec<u64> =
        (0..10).flat_map(|power| [1, 2, 5].map(|digit: u64| digit * 10_u64.pow(power))).collect();
    let axis = |size: u32, label: &str, increments: Option<&[u64]>| {
        let mut axis = json!({
            "stroke": look.ink, "font": "12px system-ui, sans-serif", "size": size, "gap": 6,
            "label": label, "labelSize": 20, "labelGap": 2, "labelFont": "12px system-ui, sans-serif",
            "grid": { "stroke": look.grid, "width": 1 }, "ticks": { "show": false },
        });
        if let Some(increments) = increments {
            axis["incrs"] = json!(increments);
        }
        axis
    };
    let (width, height) = size(element);
    let line = |(line, colour): (&super::figure::Stroke, &String)| {
        json!({
            "stroke": colour, "width": line.width, "spanGaps": true,
            "points": { "show": line.points, "size": 5, "fill": colour },
        })
    };
    let series: Vec<_> =
        [json!({})].into_iter().chain(figure.lines.iter().zip(&look.lines).map(line)).collect();
    let y = figure.range.map_or(json!({}), |range| json!({ "range": range }));
    let options = json!({
        "width": width, "height": height,
        "legend": { "show": false },
        "cursor": { "y": false, "drag": { "x": false, "y": false }, "points": { "size": 7 } },
        "scales": { "x": { "time": false }, "y": y },
        "axes": [axis(30, figure.x, Some(&whole)), axis(46, figure.y, None)],
        "series": series,
    });
    let options = JSON::parse(&options.to_string()).unwrap_or(JsValue::NULL);
    let hooks = js_sys::Object::new();
    let _ = Reflect::set(&hooks, &"setCursor".into(), &Array::of1(hover));
    let _ = Reflect::set(&options, &"hooks".into(), &hooks);
    options
}

/// Width and height of the element in CSS pixels; uPlot cannot draw into nothing.
pub(crate) fn size(element: &HtmlElement) -> (i32, i32) {
    (element.client_width().max(120), element.client_height().max(120))
}

/// The same for uPlot.
pub(crate) fn size_object(element: &HtmlElement) -> JsValue {
    let (width, height) = size(element);
    JSON::parse(&json!({ "width": width, "height": height }).to_string()).unwrap_or(JsValue::NULL)
}

/// The points that are drawn: all, or an even choice that keeps every measured validation and the end.
pub(crate) fn drawn(curve: &[CurvePoint]) -> Vec<&CurvePoint> {
    let stride = curve.len().div_ceil(MOST_POINTS).max(1);
    let last = curve.len().saturating_sub(1);
    let chosen = curve.iter().enumerate();
    chosen
        .filter(|(i, p)| i % stride == 0 || *i == last || p.validation_loss.is_some())
        .map(|(_, p)| p)
        .collect()
}

/// The columns of pipeline mode: every step's loss, their trend, and what was measured on text held back.
pub(crate) fn losses(points: &[&CurvePoint]) -> Array {
    let losses: Vec<f64> = points.iter().map(|point| point.train_loss).collect();
    let smoothed = smooth(&losses, (points.len() / SMOOTH_SHARE).min(SMOOTH_MOST));
    Array::of4(
        &steps(points),
        &Float64Array::from(losses.as_slice()),
        &Float64Array::from(smoothed.as_slice()),
        &column(points, |point| point.validation_loss),
    )
}

/// The value of a line at a point, where it has one.
pub(crate) type Value<'a> = &'a dyn Fn(&CurvePoint) -> Option<f64>;

/// The steps, then a column for each line.
pub(crate) fn columns(points: &[&CurvePoint], lines: &[Value<'_>]) -> Array {
    let data = Array::of1(&steps(points));
    for line in lines {
        data.push(&column(points, line));
    }
    data
}

fn steps(points: &[&CurvePoint]) -> Float64Array {
    let steps: Vec<f64> = points.iter().map(|point| point.step as f64).collect();
    Float64Array::from(steps.as_slice())
}

fn column(points: &[&CurvePoint], value: impl Fn(&CurvePoint) -> Option<f64>) -> Array {
    points.iter().map(|point| value(point).map_or(JsValue::NULL, JsValue::from_f64)).collect()
}
