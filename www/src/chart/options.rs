//! How the curve looks: uPlot's options, with colours from the style sheet.

use js_sys::{Array, Float64Array, Function, JSON, Reflect};
use protocol::view::CurvePoint;
use serde_json::json;
use wasm_bindgen::JsValue;
use web_sys::HtmlElement;

use crate::curve::smooth;

/// Points on either side that the bold line is the mean of, as a share of the curve and at most.
const SMOOTH_SHARE: usize = 60;
const SMOOTH_MOST: usize = 40;

/// Beyond this many points the curve has more of them than the screen has pixels, and drawing gets slow.
const MOST_POINTS: usize = 4000;

/// Colours and font of the chart, as custom properties of the element it stands in.
struct Look {
    ink: String,
    grid: String,
    jitter: String,
    training: String,
    validation: String,
}

impl Look {
    fn of(element: &HtmlElement) -> Self {
        let style = leptos::prelude::window().get_computed_style(element).ok().flatten();
        let read = |name: &str| {
            let value =
                style.as_ref().and_then(|style| style.get_property_value(name).ok()).unwrap_or_default();
            if value.trim().is_empty() { "#808080".to_owned() } else { value.trim().to_owned() }
        };
        Look {
            ink: read("--ink-2"),
            grid: read("--line"),
            jitter: read("--curve-jitter"),
            training: read("--curve-training"),
            validation: read("--curve-validation"),
        }
    }
}

/// `hover` is called with uPlot at each move of the cursor.
pub fn options(element: &HtmlElement, hover: &Function) -> JsValue {
    let look = Look::of(element);
    let axis = |size: u32, label: &str| {
        json!({
            "stroke": look.ink, "font": "12px system-ui, sans-serif", "size": size, "gap": 6,
            "label": label, "labelSize": 20, "labelGap": 2, "labelFont": "12px system-ui, sans-serif",
            "grid": { "stroke": look.grid, "width": 1 }, "ticks": { "show": false },
        })
    };
    let (width, height) = size(element);
    let options = json!({
        "width": width, "height": height,
        "legend": { "show": false },
        "cursor": { "y": false, "drag": { "x": false, "y": false }, "points": { "size": 7 } },
        "scales": { "x": { "time": false } },
        "axes": [axis(30, "step"), axis(46, "loss, nats per token")],
        "series": [
            {},
            { "stroke": look.jitter, "width": 1, "points": { "show": false } },
            { "stroke": look.training, "width": 2, "points": { "show": false } },
            { "stroke": look.validation, "width": 2, "spanGaps": true, "points": { "show": true, "size": 5, "fill": look.validation } },
        ],
    });
    let options = JSON::parse(&options.to_string()).unwrap_or(JsValue::NULL);
    let hooks = js_sys::Object::new();
    let _ = Reflect::set(&hooks, &"setCursor".into(), &Array::of1(hover));
    let _ = Reflect::set(&options, &"hooks".into(), &hooks);
    options
}

/// Width and height of the element in CSS pixels; uPlot cannot draw into nothing.
pub fn size(element: &HtmlElement) -> (i32, i32) {
    (element.client_width().max(120), element.client_height().max(120))
}

pub fn size_object(element: &HtmlElement) -> JsValue {
    let (width, height) = size(element);
    JSON::parse(&json!({ "width": width, "height": height }).to_string()).unwrap_or(JsValue::NULL)
}

/// The points that are drawn: all, or an even choice that keeps every measured validation and the end.
pub fn drawn(curve: &[CurvePoint]) -> Vec<&CurvePoint> {
    let stride = curve.len().div_ceil(MOST_POINTS).max(1);
    let last = curve.len().saturating_sub(1);
    let chosen = curve.iter().enumerate();
    chosen
        .filter(|(i, p)| i % stride == 0 || *i == last || p.validation_loss.is_some())
        .map(|(_, p)| p)
        .collect()
}

/// The columns in the order of the series.
pub fn data(points: &[&CurvePoint]) -> Array {
    let steps: Vec<f64> = points.iter().map(|point| point.step as f64).collect();
    let losses: Vec<f64> = points.iter().map(|point| point.train_loss).collect();
    let smoothed = smooth(&losses, (points.len() / SMOOTH_SHARE).min(SMOOTH_MOST));
    let validation: Array =
        points.iter().map(|point| point.validation_loss.map_or(JsValue::NULL, JsValue::from_f64)).collect();
    Array::of4(
        &Float64Array::from(steps.as_slice()),
        &Float64Array::from(losses.as_slice()),
        &Float64Array::from(smoothed.as_slice()),
        &validation,
    )
}
