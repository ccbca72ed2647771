//! The coordinator's event stream: one for all tabs of the browser where it has shared workers (`events.js`), else one
//! of this tab.

use std::{cell::RefCell, rc::Rc, time::Duration};

use leptos::prelude::set_timeout;
use wasm_bindgen::{JsCast, JsValue, prelude::Closure};
use web_sys::{Event, EventSource, MessageEvent, MessagePort, SharedWorker};

use super::js;

/// Where the coordinator's events come from; `events.js` names it too.
const EVENTS: &str = "./v1/run/events";

/// The element of index.html that names the shared worker's program. The name carries a hash of the content, so that a
/// page of another build gets a worker of its own.
const PROGRAM: &str = "link[rel='cohort-events']";

/// Time between tries where the browser does not try by itself.
const RETRY: Duration = Duration::from_secs(3);

/// What comes from the stream.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum StreamEvent {
    /// It is open, for the first time or again.
    Open,
    /// JSON of a run's view.
    Run(String),
    /// JSON of a list of points of the curve.
    Points(String),
}

/// Hears the events.
type Listener = Rc<dyn Fn(StreamEvent)>;

/// The stream of this tab; dropped, it is closed.
#[expect(dead_code, reason = "held to be dropped")]
pub(crate) enum Stream {
    /// A port to the shared worker.
    Shared(Shared),
    /// A stream of its own.
    Own(Own),
}

impl Stream {
    /// Begins to listen.
    pub(crate) fn open(listener: impl Fn(StreamEvent) + 'static) -> Self {
        let listener: Listener = Rc::new(listener);
        match Shared::open(listener.clone()) {
            Some(shared) => Stream::Shared(shared),
            None => Stream::Own(Own::open(listener)),
        }
    }
}

/// A port to the shared worker and the closures it calls.
pub(crate) struct Shared {
    port: MessagePort,
    _worker: SharedWorker,
    _message: Closure<dyn FnMut(MessageEvent)>,
}

impl Shared {
    /// None where the browser has no shared workers.
    fn open(listener: Listener) -> Option<Self> {
        js::get(&js::window(), "SharedWorker")?;
        let link = js::window().document()?.query_selector(PROGRAM).ok()??;
        let worker = SharedWorker::new(&link.get_attribute("href")?).ok()?;
        let port = worker.port();
        let message = Closure::new(move |event: MessageEvent| {
            let data = event.data();
            let text = || js::text(&data, "data").unwrap_or_default();
            match js::text(&data, "kind").as_deref() {
                Some("open") => listener(StreamEvent::Open),
                Some("run") => listener(StreamEvent::Run(text())),
                Some("points") => listener(StreamEvent::Points(text())),
                // An error shows as silence.
                _ => {}
            }
        });
        // Setting the handler also starts the port.
        port.set_onmessage(Some(message.as_ref().unchecked_ref()));
        port.post_message(&JsValue::from_str("listen")).ok()?;
        Some(Self { port, _worker: worker, _message: message })
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.port.set_onmessage(None);
        // A port to a worker that is gone needs no goodbye.
        let _ = self.port.post_message(&JsValue::from_str("leave"));
        self.port.close();
    }
}

/// A stream of this tab's own; opened anew when the browser gives it up.
pub(crate) struct Own {
    source: Rc<RefCell<Option<Source>>>,
}

/// An open stream and the closures it calls.
struct Source {
    events: EventSource,
    _closures: [Closure<dyn FnMut(Event)>; 4],
}

impl Drop for Source {
    fn drop(&mut self) {
        self.events.close();
    }
}

impl Own {
    fn open(listener: Listener) -> Self {
        let source = Rc::new(RefCell::new(None));
        connect(&source, listener);
        Self { source }
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        self.source.borrow_mut().take();
    }
}

fn connect(place: &Rc<RefCell<Option<Source>>>, listener: Listener) {
    let Ok(events) = EventSource::new(EVENTS) else { return };
    let hear = |make: fn(String) -> StreamEvent| {
        let listener = listener.clone();
        Closure::<dyn FnMut(Event)>::new(move |event: Event| {
            if let Some(text) = event.dyn_ref::<MessageEvent>().and_then(|event| event.data().as_string()) {
                listener(make(text));
            }
        })
    };
    let (run, points) = (hear(StreamEvent::Run), hear(StreamEvent::Points));
    let opened = {
        let listener = listener.clone();
        Closure::<dyn FnMut(Event)>::new(move |_| listener(StreamEvent::Open))
    };
    let failed = {
        // Not a strong one: the stream must not keep itself open.
        let (place, events) = (Rc::downgrade(place), events.clone());
        Closure::<dyn FnMut(Event)>::new(move |_| {
            // The browser tries again by itself unless it was answered with something that is no event stream.
            if events.ready_state() != EventSource::CLOSED {
                return;
            }
            let (place, listener) = (place.clone(), listener.clone());
            let again = move || {
                if let Some(place) = place.upgrade().filter(|place| place.borrow().is_some()) {
                    connect(&place, listener);
                }
            };
            set_timeout(again, RETRY);
        })
    };
    events.set_onopen(Some(opened.as_ref().unchecked_ref()));
    events.set_onerror(Some(failed.as_ref().unchecked_ref()));
    // The names of an EventSource are always free to listen to.
    let _ = events.add_event_listener_with_callback("run", run.as_ref().unchecked_ref());
    let _ = events.add_event_listener_with_callback("points", points.as_ref().unchecked_ref());
    *place.borrow_mut() = Some(Source { events, _closures: [opened, failed, run, points] });
}
