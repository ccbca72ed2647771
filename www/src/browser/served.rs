//! What the coordinator says of texts that the model writes: fetched at first, and again when there may be news.

use std::time::Duration;

use leptos::prelude::*;
use protocol::serving::{Place, Samples, ServingView};
use wasm_bindgen_futures::spawn_local;

use super::{api, live::Live};

/// A snapshot is loaded some time after it was taken, or only once somebody asks: this long after it the page asks again,
/// and then after twice as long each time.
const AGAIN: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_mins(1);

/// What the pages know of it.
#[derive(Clone, Copy)]
pub(crate) struct Served {
    /// None before the first answer.
    pub(crate) view: RwSignal<Option<ServingView>>,
    /// What the model wrote at several ages.
    pub(crate) samples: RwSignal<Samples>,
}

impl Served {
    /// Asks now, and whenever there is another snapshot.
    pub(crate) fn start(live: Live) -> Self {
        let served = Self { view: RwSignal::new(None), samples: RwSignal::new(Samples::default()) };
        let snapshot = Memo::new(move |_| live.run.with(|run| run.as_ref().map(|run| run.snapshot_step)));
        Effect::new(move |_| {
            // Not before the run is known: one question at a time.
            if let Some(step) = snapshot.get() {
                served.ask_until(step, AGAIN, snapshot);
            }
        });
        served
    }

    /// Asks now, and again until the model of this snapshot answers or there is a newer one.
    fn ask_until(self, step: Option<u64>, wait: Duration, newest: Memo<Option<Option<u64>>>) {
        self.ask();
        let again = move || {
            let known =
                self.view.with_untracked(|view| view.as_ref()?.model.as_ref().map(|model| model.step));
            if self.is_offered() && known != step && newest.get_untracked() == Some(step) {
                self.ask_until(step, (2 * wait).min(LONGEST), newest);
            }
        };
        set_timeout(again, wait);
    }

    /// Asks again. Without an answer what is known stays.
    pub(crate) fn ask(self) {
        spawn_local(async move {
            if let Ok(view) = api::serving().await {
                self.view.set(Some(view));
            }
            if self.is_offered()
                && let Ok(samples) = api::samples().await
            {
                self.samples.set(samples);
            }
        });
    }

    /// Whether the run writes texts at all.
    pub(crate) fn is_offered(self) -> bool {
        self.view.with(|view| view.as_ref().is_some_and(|view| view.place != Place::Off))
    }
}
