//! The organizer's page: the run, its devices, and the buttons.

use leptos::prelude::*;
use protocol::view::{Phase, WorkerView};
use wasm_bindgen_futures::spawn_local;

use super::dashboard::{Figures, RunPanel, watch_title};
use crate::{
    browser::{api, focus, live::Live, served::Served, token},
    components::{
        confirm::Confirm,
        header::{Header, Place},
        invite::Invite,
        main_area::Main,
        workers::{HEADING, Workers},
    },
    state::facts::{is_over, is_running},
    text::{
        Tone,
        organizer::{self as text, Denied, Order, Question},
        pages::{self, ApiError},
        playground,
    },
};

/// What gives orders and remembers what came of the last one.
#[derive(Clone, Copy)]
struct Desk {
    /// What the orders are given with, or why there are none.
    token: RwSignal<Result<String, Denied>>,
    question: RwSignal<Option<Question>>,
    /// An order is on its way.
    busy: RwSignal<bool>,
    /// What came of the last order.
    outcome: RwSignal<Option<(Tone, String)>>,
}

impl Desk {
    fn new() -> Self {
        let desk = Desk {
            token: RwSignal::new(token::recall().ok_or(Denied::NoToken)),
            question: RwSignal::new(None),
            busy: RwSignal::new(false),
            outcome: RwSignal::new(None),
        };
        token::on_new(move |token| {
            desk.outcome.set(None);
            desk.token.set(Ok(token));
            desk.check();
        });
        desk.check();
        desk
    }

    /// Asks whether the token is any good, before somebody relies on the buttons. Without an answer they stay: the
    /// coordinator may be starting.
    fn check(self) {
        let Ok(token) = self.token.get_untracked() else { return };
        spawn_local(async move {
            if api::check(&token).await == Err(ApiError::Unauthorized) {
                token::forget();
                self.token.set(Err(Denied::WrongToken));
            }
        });
    }

    fn give(self, order: Order) {
        let Ok(token) = self.token.get_untracked() else { return };
        if self.busy.get_untracked() {
            return;
        }
        self.busy.set(true);
        self.outcome.set(None);
        let served = expect_context::<Served>();
        if let Order::Remove(_) = order {
            // The button goes away with its row.
            focus::to(HEADING);
        }
        spawn_local(async move {
            let outcome = match api::give(order, &token).await {
                Ok(()) => (Tone::Calm, text::taken(order).to_owned()),
                Err(error) => {
                    if error == ApiError::Unauthorized {
                        token::forget();
                        self.token.set(Err(Denied::WrongToken));
                    }
                    (Tone::Bad, pages::error(&error))
                }
            };
            self.outcome.set(Some(outcome));
            self.busy.set(false);
            if let Order::Serve(_) = order {
                served.ask();
            }
        });
    }
}

/// The page.
#[component]
pub(crate) fn Organizer() -> impl IntoView {
    watch_title();
    let desk = Desk::new();
    let mode = expect_context::<Live>().mode;
    let ask = Callback::new(move |worker: WorkerView| {
        if let Some(mode) = mode.get_untracked() {
            desk.question.set(Some(text::remove(&worker, mode.text())));
        }
    });
    let may = Memo::new(move |_| desk.token.with(Result::is_ok));
    let remove = Signal::derive(move || may.get().then_some(ask));
    let denied = Memo::new(move |_| desk.token.with(|token| token.as_ref().err().copied()));
    let controls = move || match denied.get() {
        None => view! { <Controls desk/> }.into_any(),
        Some(denied) => view! {
            <p class="notice" data-tone="calm" data-testid="read-only">{text::denied(denied)}</p>
        }
        .into_any(),
    };
    view! {
        <Header here=Place::Organizer/>
        <Main>
            <RunPanel heading=text::HEADING>{controls}</RunPanel>
            <Figures/>
            <Workers remove/>
            <ServingSwitch desk may/>
            <Invite/>
        </Main>
        <Outcome outcome=desk.outcome/>
        <Confirm question=desk.question answer=Callback::new(move |order| desk.give(order))/>
    }
}

/// The buttons. One that is off keeps the focus, so that whoever works with the keyboard stays where they are.
#[component]
fn Controls(desk: Desk) -> impl IntoView {
    let phase = expect_context::<Live>().phase;
    let button = move |id: &'static str,
                       class: &'static str,
                       name: Signal<&'static str>,
                       fits: fn(Phase) -> bool,
                       press: Callback<()>| {
        let off = Memo::new(move |_| desk.busy.get() || !phase.get().is_some_and(fits));
        let pressed = move |_| {
            if !off.get_untracked() {
                press.run(());
            }
        };
        view! {
            <button
                type="button"
                class=class
                data-testid=id
                aria-disabled=move || off.get().to_string()
                on:click=pressed
            >
                {name}
            </button>
        }
    };
    let give = move |order: Order| Callback::new(move |()| desk.give(order));
    let start = Signal::derive(move || text::start(phase.get()));
    let ask_stop = Callback::new(move |()| desk.question.set(Some(text::stop())));
    view! {
        <div class="actions">
            {button("start", "button primary", start, |phase| matches!(phase, Phase::Waiting | Phase::Paused), give(Order::Start))}
            {button("pause", "button", Signal::stored(text::PAUSE), is_running, give(Order::Pause))}
            {button("stop-run", "button danger", Signal::stored(text::STOP), |phase| !is_over(phase), ask_stop)}
        </div>
    }
}

/// Turns texts for visitors on and off, where the run writes any.
#[component]
fn ServingSwitch(desk: Desk, may: Memo<bool>) -> impl IntoView {
    let served = expect_context::<Served>();
    let on = Memo::new(move |_| served.view.with(|view| view.as_ref().is_some_and(|view| view.on)));
    let note = move || served.view.with(|view| view.as_ref().map(|view| playground::switch_note(view.place)));
    let words = move || if on.get() { playground::SWITCH_OFF } else { playground::SWITCH_ON };
    let pressed = move |_| {
        if !desk.busy.get_untracked() {
            desk.give(Order::Serve(!on.get_untracked()));
        }
    };
    view! {
        <section class="card" aria-labelledby="serving-title" hidden=move || !(may.get() && served.is_offered())>
            <h2 id="serving-title">{playground::SWITCH_TITLE}</h2>
            <p class="quiet">{note} " " <a href="playground">{playground::HEADING}</a></p>
            <div class="actions">
                <button
                    type="button"
                    class="button"
                    data-testid="serving-switch"
                    aria-disabled=move || desk.busy.get().to_string()
                    on:click=pressed
                >
                    {words}
                </button>
            </div>
        </section>
    }
}

/// What came of the last order.
#[component]
fn Outcome(outcome: RwSignal<Option<(Tone, String)>>) -> impl IntoView {
    let notice = move || {
        outcome.get().map(|(tone, words)| {
            let id = if tone == Tone::Bad { "order-error" } else { "order-taken" };
            view! {
                <p class="notice" data-tone=tone.name()>
                    <span data-testid=id>{words}</span>
                    <button type="button" class="button small" on:click=move |_| outcome.set(None)>{text::CLOSE}</button>
                </p>
            }
        })
    };
    view! { <div class="toast" role="alert">{notice}</div> }
}
