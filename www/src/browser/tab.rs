//! The Web Worker that trains: started, told what to do, listened to, ended.

use std::time::Duration;

use leptos::prelude::*;
use protocol::{
    spec::Backend,
    tab::{Command, SessionEvent},
};
use wasm_bindgen::{JsCast, JsValue, prelude::Closure};
use web_sys::{ErrorEvent, Event, MessageEvent, Worker, WorkerOptions, WorkerType};

use super::{address, clock::now};
use crate::state::{
    activity::LOADING_LIMIT,
    session::{Session, Stage},
};

/// `wasm-worker/loader.js`: it loads the training program and starts it.
const PROGRAM: &str = "./worker_loader.js";

/// How long a worker may take to say goodbye before it is ended without one. It may be deep in a step.
const FAREWELL: Duration = Duration::from_secs(5);

/// After a crash the program is started again this soon, ...
const RESTART: Duration = Duration::from_secs(1);
/// ... unless it has crashed this often without having done a step.
const MOST_RESTARTS: u32 = 3;

/// How somebody wants to take part.
#[derive(Debug, Clone)]
pub(crate) struct Join {
    /// Shown to the organizer.
    pub(crate) name: String,
    /// None takes the faster one that works.
    pub(crate) backend: Option<Backend>,
    /// Use WebGPU even where the processor simulates it.
    pub(crate) allow_software_gpu: bool,
    /// Bytes that its part may take; None: as the device suggests.
    pub(crate) memory_bytes: Option<u64>,
}

/// The Web Worker of this tab and what it has told.
#[derive(Clone, Copy)]
pub(crate) struct Tab {
    /// This device's part in the run.
    pub(crate) session: RwSignal<Session>,
    worker: StoredValue<Option<Handle>, LocalStorage>,
    /// Counts the workers, so that a deadline of one cannot end the next.
    number: StoredValue<u64>,
    /// How it was joined last.
    wish: StoredValue<Option<Join>>,
    /// Restarts since the last step.
    restarts: StoredValue<u32>,
}

/// A running worker and the closures it calls.
struct Handle {
    worker: Worker,
    _message: Closure<dyn FnMut(MessageEvent)>,
    _error: Closure<dyn FnMut(Event)>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.worker.terminate();
    }
}

impl Tab {
    /// No worker yet.
    pub(crate) fn new() -> Self {
        Tab {
            session: RwSignal::new(Session::default()),
            worker: StoredValue::new_local(None),
            number: StoredValue::new(0),
            wish: StoredValue::new(None),
            restarts: StoredValue::new(0),
        }
    }

    /// Starts a worker and takes part. A worker that still runs is ended.
    pub(crate) fn join(self, join: Join) {
        self.restarts.set_value(0);
        self.start(join);
    }

    fn start(self, join: Join) {
        self.end();
        self.wish.set_value(Some(join.clone()));
        self.session.update(|session| *session = session.starting(now()));
        let options = WorkerOptions::new();
        options.set_type(WorkerType::Module);
        self.give_up_loading_in_time();
        let Ok(worker) = Worker::new_with_options(PROGRAM, &options) else {
            return self.session.update(|session| session.stage = Stage::Unloadable);
        };
        let command = Command::Join {
            session_url: address::session_url(),
            coordinator: address::coordinator(),
            name: join.name,
            backend: join.backend,
            allow_software_gpu: join.allow_software_gpu,
            memory_bytes: join.memory_bytes,
        };
        // A message sent before the worker listens would be lost, so the worker sends the first one: what it found on
        // this device. The order is the answer to that.
        let mut order = Some(command);
        let message = Closure::new(move |event: MessageEvent| {
            if let Some(order) = order.take() {
                self.send(&order);
            }
            if let Some(event) = read(&event) {
                self.hear(event);
            }
        });
        let error = Closure::new(move |event: Event| {
            // Otherwise the console would repeat what the page says in words.
            event.prevent_default();
            let words = event.dyn_ref::<ErrorEvent>().map(ErrorEvent::message).unwrap_or_default();
            leptos::logging::warn!("the training program stopped: {words}");
            self.session.update(|session| session.lost_worker(words, now()));
            self.end();
            self.restart_soon();
        });
        worker.set_onmessage(Some(message.as_ref().unchecked_ref()));
        worker.set_onerror(Some(error.as_ref().unchecked_ref()));
        self.worker.set_value(Some(Handle { worker, _message: message, _error: error }));
    }

    /// A download that hangs must not leave the page waiting for ever.
    fn give_up_loading_in_time(self) {
        let number = self.number.get_value();
        let deadline = move || {
            if self.number.get_value() == number
                && self.session.with_untracked(|session| session.stage == Stage::Starting)
            {
                self.session.update(|session| session.lost_worker(String::new(), now()));
                self.end();
            }
        };
        set_timeout(deadline, Duration::from_secs_f64(LOADING_LIMIT));
    }

    /// A crash ends one instance of the program, not the wish to take part.
    fn restart_soon(self) {
        let crashed = move || self.session.with_untracked(|s| matches!(s.stage, Stage::Crashed(_)));
        if !crashed() || self.restarts.get_value() >= MOST_RESTARTS {
            return;
        }
        self.restarts.update_value(|restarts| *restarts += 1);
        let number = self.number.get_value();
        let restart = move || {
            if self.number.get_value() == number
                && crashed()
                && let Some(wish) = self.wish.get_value()
            {
                self.start(wish);
            }
        };
        set_timeout(restart, RESTART);
    }

    /// Leaves the run.
    pub(crate) fn stop(self) {
        let stage = self.session.with_untracked(|session| session.stage.clone());
        if !stage.is_active() {
            return;
        }
        self.session.update(|session| session.stop(now()));
        if stage == Stage::Starting {
            // Nobody knows of this device yet.
            return self.hear(SessionEvent::Left);
        }
        self.send(&Command::Leave);
        let number = self.number.get_value();
        let deadline = move || {
            if self.number.get_value() == number
                && self.session.with_untracked(|session| session.stage == Stage::Stopping)
            {
                self.hear(SessionEvent::Left);
            }
        };
        set_timeout(deadline, FAREWELL);
    }

    fn hear(self, event: SessionEvent) {
        if matches!(event, SessionEvent::Step { .. } | SessionEvent::DeltaSent { .. }) {
            self.restarts.set_value(0);
        }
        self.session.update(|session| session.apply(event, now()));
        if self.session.with_untracked(|session| !session.stage.is_active()) {
            self.end();
        }
    }

    /// Ends the worker, if there is one. The next join gets a fresh one.
    fn end(self) {
        self.number.update_value(|number| *number += 1);
        self.worker.set_value(None);
    }

    fn send(self, command: &Command) {
        let Ok(text) = serde_json::to_string(command) else { return };
        self.worker.with_value(|handle| {
            if let Some(handle) = handle {
                // Text can always be cloned over to a worker.
                let _ = handle.worker.post_message(&JsValue::from_str(&text));
            }
        });
    }
}

fn read(event: &MessageEvent) -> Option<SessionEvent> {
    let text = event.data().as_string()?;
    match serde_json::from_str(&text) {
        Ok(event) => Some(event),
        Err(error) => {
            leptos::logging::warn!("the training program sent something unknown: {error}");
            None
        }
    }
}
