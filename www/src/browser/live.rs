//! The run as the coordinator tells it: fetched once, then kept current by the event stream. What is decided on the way
//! is in [`curve`](crate::state::curve) and [`link`](crate::state::link).

use leptos::prelude::*;
use protocol::view::{CurvePoint, Phase, RunView};
use wasm_bindgen_futures::spawn_local;

use super::{
    api,
    clock::{now, ticking},
    stream::{Stream, StreamEvent},
    visibility,
};
use crate::state::{
    curve::{cut_rolled_back, follow, is_beyond, known_up_to, replace_after},
    facts::stride,
    link::{Link, Monitor},
    mode::Mode,
};
use crate::text::pages::ApiError;

/// What the pages know of the run.
#[derive(Clone, Copy)]
pub(crate) struct Live {
    /// The newest view of the run; None before the first.
    pub(crate) run: RwSignal<Option<RunView>>,
    /// The learning curve, by step.
    pub(crate) curve: RwSignal<Vec<CurvePoint>>,
    /// The run's mode, once it is known.
    pub(crate) mode: Memo<Option<Mode>>,
    /// The run's phase, once it is known.
    pub(crate) phase: Memo<Option<Phase>>,
    /// Whether what is shown is current.
    pub(crate) link: Memo<Link>,
    /// Whether the coordinator sends what this page cannot read: one of them is of another version.
    pub(crate) unreadable: RwSignal<bool>,
    /// The page's clock, in seconds, a few times a second.
    pub(crate) clock: ReadSignal<f64>,
    monitor: RwSignal<Monitor>,
    /// Points that arrived while the curve is being fetched; None when it is not.
    meanwhile: StoredValue<Option<Vec<CurvePoint>>>,
    stream: StoredValue<Option<Stream>, LocalStorage>,
}

impl Live {
    /// Begins to listen. The stream is closed while the page is hidden.
    pub(crate) fn start() -> Self {
        let clock = ticking();
        let run = RwSignal::new(None::<RunView>);
        let monitor = RwSignal::new(Monitor::new(now()));
        let live = Live {
            run,
            curve: RwSignal::new(Vec::new()),
            mode: Memo::new(move |_| run.with(|run| run.as_ref().map(|run| Mode::of(&run.run)))),
            phase: Memo::new(move |_| run.with(|run| run.as_ref().map(|run| run.phase))),
            link: Memo::new(move |_| monitor.get().link(clock.get().max(now()))),
            unreadable: RwSignal::new(false),
            clock,
            monitor,
            meanwhile: StoredValue::new(None),
            stream: StoredValue::new_local(None),
        };
        Effect::new(move |_| {
            if live.monitor.try_update_untracked(|monitor| monitor.ask(live.clock.get())) == Some(true) {
                live.ask();
            }
        });
        if visibility::is_visible() {
            live.listen();
        } else {
            live.hide();
        }
        visibility::on_change(move |visible| if visible { live.show() } else { live.hide() });
        visibility::on_leave(move || live.hide());
        visibility::on_return(move || {
            if visibility::is_visible() {
                live.show();
            }
        });
        live
    }

    /// Seconds since the coordinator was heard of, running.
    pub(crate) fn silence(self) -> f64 {
        self.monitor.get().silence(self.clock.get())
    }

    fn listen(self) {
        self.stream.set_value(Some(Stream::open(move |event| self.hear(event))));
    }

    fn show(self) {
        if self.stream.with_value(Option::is_none) {
            self.monitor.update(|monitor| monitor.show(now()));
            self.listen();
        }
    }

    fn hide(self) {
        self.monitor.update(Monitor::hide);
        self.stream.set_value(None);
    }

    fn hear(self, event: StreamEvent) {
        self.monitor.update(|monitor| monitor.heard(now()));
        match event {
            StreamEvent::Open => self.fetch_all(),
            StreamEvent::Run(text) => {
                let run = serde_json::from_str(&text);
                self.unreadable.set(run.is_err());
                if let Ok(run) = run {
                    self.set_run(run);
                }
            }
            StreamEvent::Points(text) => {
                if let Ok(points) = serde_json::from_str(&text) {
                    self.add(points);
                }
            }
        }
    }

    fn set_run(self, run: RunView) {
        self.run.with_untracked(|before| {
            if let Some(before) = before {
                self.curve.maybe_update(|curve| cut_rolled_back(curve, before, &run));
            }
        });
        self.run.set(Some(run));
    }

    /// The stream is silent: an answer to a question is as good.
    fn ask(self) {
        spawn_local(async move {
            match api::run().await {
                Ok(run) => {
                    self.monitor.update(|monitor| monitor.heard(now()));
                    let behind = self.curve.with_untracked(|curve| {
                        run.step > curve.last().map_or(0, |last| last.step) + stride(&run)
                    });
                    self.set_run(run);
                    if behind {
                        self.fetch_after(self.last_step());
                    }
                }
                Err(error) => {
                    if error == ApiError::Unreadable {
                        self.unreadable.set(true);
                    }
                    self.monitor.try_update_untracked(Monitor::unanswered);
                }
            }
        });
    }

    /// The stream was opened: meanwhile the run may have gone on, gone back or ended.
    fn fetch_all(self) {
        let known = self.run.get_untracked();
        spawn_local(async move {
            let Ok(run) = api::run().await else { return };
            self.monitor.update(|monitor| monitor.heard(now()));
            let after = self.curve.with_untracked(|curve| known_up_to(curve, known.as_ref(), &run));
            self.set_run(run);
            self.fetch_after(after);
        });
    }

    fn last_step(self) -> u64 {
        self.curve.with_untracked(|curve| curve.last().map_or(0, |last| last.step))
    }

    fn fetch_after(self, after: u64) {
        if self.meanwhile.with_value(Option::is_some) {
            return;
        }
        self.meanwhile.set_value(Some(Vec::new()));
        spawn_local(async move {
            let listed = api::curve(after).await;
            let meanwhile = self.meanwhile.try_update_value(Option::take).flatten().unwrap_or_default();
            self.curve.update(|curve| match listed {
                Ok(listed) => replace_after(curve, after, listed, meanwhile),
                Err(_) => follow(curve, meanwhile),
            });
        });
    }

    fn add(self, points: Vec<CurvePoint>) {
        let fetching = self.meanwhile.try_update_value(|meanwhile| match meanwhile {
            Some(meanwhile) => {
                meanwhile.extend(points.iter().cloned());
                true
            }
            None => false,
        });
        if fetching == Some(true) {
            return;
        }
        let stride = self.run.with_untracked(|run| run.as_ref().map_or(1, stride));
        let before = self.last_step();
        if self.curve.with_untracked(|curve| is_beyond(curve, &points, stride)) {
            // The list will have these points too.
            return self.fetch_after(before);
        }
        self.curve.update(|curve| follow(curve, points));
    }
}
