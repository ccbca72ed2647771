//! How the curve looks: uPlot's options, with colours from the style sheet.

use js_sys::{Array, Function, JSON, Reflect};
use serde_json::json;
use wasm_bindgen::JsValue;
use web_sys::HtmlElement;

use super::figure::{Figure, Stroke};

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
    let line = |(line, colour): (&Stroke, &String)| {
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
