//! The learning curve: a chart, a line with its values, and words for those who do not see it.

mod blocks;
mod columns;
mod figure;
mod options;
mod uplot;

use std::time::Duration;

use js_sys::{Function, Reflect};
use leptos::{html::Div, prelude::*};
use protocol::view::CurvePoint;
use wasm_bindgen::{JsCast, JsValue, prelude::Closure};
use web_sys::{HtmlElement, ResizeObserver};

pub(crate) use self::blocks::{ParticipationCurve, ScoreCurve};
use self::{figure::Subject, uplot::UPlot};
use crate::{
    browser::live::Live,
    text::{
        chart::{self as text, newest_validation, value_at},
        numbers::{count, loss},
    },
};

/// What lives as long as the chart is on the page.
struct Drawing {
    plot: Option<UPlot>,
    _hover: Closure<dyn FnMut(JsValue)>,
    resize: Option<ResizeObserver>,
    _resized: Closure<dyn FnMut()>,
}

impl Drop for Drawing {
    fn drop(&mut self) {
        if let Some(resize) = &self.resize {
            resize.disconnect();
        }
        if let Some(plot) = &self.plot {
            plot.destroy();
        }
    }
}

/// The chart's element and drawing; copied into the closures that work on them.
#[derive(Clone, Copy)]
struct Chart {
    host: NodeRef<Div>,
    drawing: StoredValue<Option<Drawing>, LocalStorage>,
    curve: RwSignal<Vec<CurvePoint>>,
    subject: Subject,
    /// Index, among the drawn points, of the one under the cursor.
    at: RwSignal<Option<usize>>,
    /// A redrawing is due soon and will show what comes until then.
    waiting: StoredValue<bool>,
}

/// Time between two redrawings: a fast run has many steps a second, and drawing takes the page's thread.
const REDRAW: Duration = Duration::from_millis(500);

impl Chart {
    fn new(subject: Subject) -> Self {
        let chart = Chart {
            host: NodeRef::new(),
            drawing: StoredValue::new_local(None),
            curve: expect_context::<Live>().curve,
            subject,
            at: RwSignal::new(None),
            waiting: StoredValue::new(false),
        };
        Effect::new(move |_| {
            if let Subject::Scores(lines) = subject {
                lines.track();
            }
            if chart.host.get().is_some() {
                chart.draw();
            }
        });
        Effect::new(move |_| {
            chart.curve.track();
            chart.refresh_soon();
        });
        redraw_on_new_colours(chart);
        on_cleanup(move || chart.drawing.set_value(None));
        chart
    }

    fn element(self) -> Option<HtmlElement> {
        self.host.get_untracked().map(|div| div.unchecked_into())
    }

    /// Draws from nothing; again when the colours change.
    fn draw(self) {
        let Some(element) = self.element() else { return };
        self.drawing.set_value(None);
        let hover = Closure::new(move |plot: JsValue| {
            let at =
                Reflect::get(&plot, &"cursor".into()).and_then(|cursor| Reflect::get(&cursor, &"idx".into()));
            let at = at.ok().and_then(|at| at.as_f64()).map(|at| at as usize);
            // uPlot calls this while it draws; the page may only follow once it is done.
            queue_microtask(move || self.at.set(at));
        });
        let resized = Closure::new(move || self.fit());
        let function: &Function = hover.as_ref().unchecked_ref();
        let data = self.curve.with_untracked(|curve| self.subject.data(&columns::drawn(curve)));
        let figure = self.subject.figure();
        let plot = UPlot::new(&options::options(&element, function, &figure), &data, &element).ok();
        let resize = ResizeObserver::new(resized.as_ref().unchecked_ref()).ok();
        if let Some(resize) = &resize {
            resize.observe(&element);
        }
        self.drawing.set_value(Some(Drawing { plot, _hover: hover, resize, _resized: resized }));
    }

    fn fit(self) {
        let Some(element) = self.element() else { return };
        self.with_plot(|plot| plot.set_size(&options::size_object(&element)));
    }

    fn refresh_soon(self) {
        if self.waiting.try_get_value() != Some(false) {
            return;
        }
        self.waiting.set_value(true);
        set_timeout(
            move || {
                if self.waiting.try_set_value(false).is_none() {
                    self.refresh();
                }
            },
            REDRAW,
        );
    }

    fn refresh(self) {
        let data = self.curve.with_untracked(|curve| self.subject.data(&columns::drawn(curve)));
        self.with_plot(|plot| plot.set_data(&data));
    }

    fn with_plot(self, work: impl FnOnce(&UPlot)) {
        self.drawing.with_value(|drawing| {
            if let Some(plot) = drawing.as_ref().and_then(|drawing| drawing.plot.as_ref()) {
                work(plot);
            }
        });
    }

    /// The points up to the one under the cursor, or else all.
    fn up_to_cursor<T>(self, read: impl FnOnce(&[&CurvePoint]) -> T) -> Option<T> {
        let at = self.at.get();
        self.curve.with(|curve| {
            let points = columns::drawn(curve);
            let at = at.unwrap_or(usize::MAX).min(points.len().checked_sub(1)?);
            points.get(..=at).map(read)
        })
    }

    /// The point under the cursor or else the last one, and the newest validation up to there.
    fn read_out(self) -> Option<(CurvePoint, Option<(u64, f64)>)> {
        self.up_to_cursor(|points| {
            let last = points.last().map(|last| (*last).clone())?;
            Some((last, newest_validation(points.iter().copied())))
        })?
    }
}

/// The losses of pipeline mode.
#[component]
pub(crate) fn LossCurve() -> impl IntoView {
    let live = expect_context::<Live>();
    let chart = Chart::new(Subject::Losses);
    let is_empty = move || live.curve.with(Vec::is_empty);
    let read_out = move || chart.read_out().map(|(point, measured)| view! { <ReadOut point measured/> });
    view! {
        <figure class="chart">
            <p class="chart-read" aria-hidden="true">{read_out}</p>
            <div class="chart-box">
                <div
                    class="chart-host"
                    node_ref=chart.host
                    role="img"
                    aria-label=move || live.curve.with(|curve| text::losses(curve))
                ></div>
                <p class="chart-empty" hidden=move || !is_empty()>{text::EMPTY}</p>
            </div>
        </figure>
    }
}

#[component]
fn ReadOut(point: CurvePoint, measured: Option<(u64, f64)>) -> impl IntoView {
    let validation = value_at(point.step, measured);
    view! {
        <span class="key">{text::STEP} <b>{count(point.step)}</b></span>
        <span class="key key-training">{text::TRAINING} <b>{loss(point.train_loss)}</b></span>
        <span class="key key-validation">{text::VALIDATION} <b>{validation}</b></span>
    }
}

/// Canvas does not follow style sheets: draw again when the device changes between light and dark.
fn redraw_on_new_colours(chart: Chart) {
    let Ok(Some(query)) = window().match_media("(prefers-color-scheme: dark)") else { return };
    let changed = Closure::<dyn FnMut()>::new(move || chart.draw());
    query.set_onchange(Some(changed.as_ref().unchecked_ref()));
    let listener = StoredValue::new_local(Some((query, changed)));
    on_cleanup(move || {
        if let Some((query, _)) = listener.try_update_value(Option::take).flatten() {
            query.set_onchange(None);
        }
    });
}
