//! The run as the coordinator tells it: fetched once, then kept current by server-sent events.

use std::time::Duration;

use leptos::prelude::*;
use protocol::view::{CurvePoint, RunView};
use serde::de::DeserializeOwned;
use wasm_bindgen::{JsCast, prelude::Closure};
use wasm_bindgen_futures::spawn_local;
use web_sys::{Event, EventSource, MessageEvent};

use crate::{
    api,
    curve::{is_beyond, merge},
};

/// How the page hears from the coordinator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Link {
    Opening,
    Live,
    Lost,
}

/// Time between tries where the browser does not try by itself.
const RETRY: Duration = Duration::from_secs(3);

#[derive(Clone, Copy)]
pub struct Live {
    pub run: RwSignal<Option<RunView>>,
    pub curve: RwSignal<Vec<CurvePoint>>,
    pub link: RwSignal<Link>,
    /// Points that arrived while the whole curve is being fetched; None when it is not.
    early: StoredValue<Option<Vec<CurvePoint>>>,
    source: StoredValue<Option<Source>, LocalStorage>,
}

/// An open event stream and the closures it calls.
struct Source {
    events: EventSource,
    _closures: [Closure<dyn FnMut(Event)>; 4],
}

impl Drop for Source {
    fn drop(&mut self) {
        self.events.close();
    }
}

impl Live {
    pub fn start() -> Self {
        let live = Live {
            run: RwSignal::new(None),
            curve: RwSignal::new(Vec::new()),
            link: RwSignal::new(Link::Opening),
            early: StoredValue::new(None),
            source: StoredValue::new_local(None),
        };
        live.open();
        live
    }

    fn open(self) {
        let Ok(events) = EventSource::new(api::EVENTS) else { return self.retry() };
        let opened = Closure::new(move |_: Event| self.opened());
        let failed = Closure::new(move |_: Event| self.failed());
        let run = Closure::new(move |event: Event| {
            if let Some(run) = data(&event) {
                self.run.set(Some(run));
            }
        });
        let points = Closure::new(move |event: Event| {
            if let Some(points) = data(&event) {
                self.add(points);
            }
        });
        events.set_onopen(Some(opened.as_ref().unchecked_ref()));
        events.set_onerror(Some(failed.as_ref().unchecked_ref()));
        // The names of an EventSource are always free to listen to.
        let _ = events.add_event_listener_with_callback("run", run.as_ref().unchecked_ref());
        let _ = events.add_event_listener_with_callback("points", points.as_ref().unchecked_ref());
        self.source.set_value(Some(Source { events, _closures: [opened, failed, run, points] }));
    }

    /// Fetches everything anew: while the stream was closed the run may have gone on, gone back or ended.
    fn opened(self) {
        self.link.set(Link::Live);
        spawn_local(async move {
            if let Ok(run) = api::run().await {
                self.run.set(Some(run));
            }
        });
        self.fetch_curve();
    }

    fn fetch_curve(self) {
        self.early.set_value(Some(Vec::new()));
        spawn_local(async move {
            let fetched = api::curve(0).await;
            let early = self.early.try_update_value(Option::take).flatten().unwrap_or_default();
            self.curve.update(|curve| {
                if let Ok(fetched) = fetched {
                    *curve = fetched;
                }
                merge(curve, early);
            });
        });
    }

    fn failed(self) {
        self.link.set(Link::Lost);
        // The browser tries again by itself unless it was answered with something that is no event stream.
        let closed = self.source.with_value(|source| {
            source.as_ref().is_none_or(|source| source.events.ready_state() == EventSource::CLOSED)
        });
        if closed {
            self.retry();
        }
    }

    fn retry(self) {
        self.link.set(Link::Lost);
        set_timeout(move || self.open(), RETRY);
    }

    fn add(self, points: Vec<CurvePoint>) {
        let kept = self.early.try_update_value(|early| match early {
            Some(early) => {
                early.extend(points.iter().cloned());
                true
            }
            None => false,
        });
        if kept == Some(true) {
            return;
        }
        let gap = self.curve.with_untracked(|curve| is_beyond(curve, &points));
        self.curve.update(|curve| merge(curve, points));
        if gap {
            self.fetch_curve();
        }
    }
}

fn data<T: DeserializeOwned>(event: &Event) -> Option<T> {
    let text = event.dyn_ref::<MessageEvent>()?.data().as_string()?;
    serde_json::from_str(&text).ok()
}
