//! The organizer's page: the run, its devices, and the buttons.

use leptos::prelude::*;
use protocol::view::{Phase, WorkerView};
use wasm_bindgen_futures::spawn_local;

use super::dashboard::{Figures, RunPanel, watch_title};
use crate::{
    api::{self, Order},
    browser::token,
    components::{
        confirm::{Confirm, Question},
        header::{Header, Place},
        invite::Invite,
        link_lost::LinkLost,
        workers::Workers,
    },
    live::Live,
    run_facts, words,
};

/// What gives orders and remembers how the last one went.
#[derive(Clone, Copy)]
struct Desk {
    token: StoredValue<Option<String>>,
    question: RwSignal<Option<Question<Order>>>,
    /// An order is on its way.
    busy: RwSignal<bool>,
    /// Why the last order was not carried out.
    error: RwSignal<Option<String>>,
}

impl Desk {
    fn give(self, order: Order) {
        let Some(token) = self.token.get_value() else { return };
        if self.busy.get_untracked() {
            return;
        }
        self.busy.set(true);
        self.error.set(None);
        spawn_local(async move {
            if let Err(words) = api::give(order, &token).await {
                self.error.set(Some(words));
            }
            self.busy.set(false);
        });
    }

    fn ask_stop(self) {
        self.question.set(Some(Question {
            title: "Stop the run for good?".to_owned(),
            detail:
                "All devices are sent home and the run cannot be started again. To interrupt it, use Pause."
                    .to_owned(),
            yes: "Stop the run".to_owned(),
            then: Order::Stop,
        }));
    }

    fn ask_remove(self, worker: &WorkerView) {
        let detail = match worker.replica {
            Some(_) => {
                "What it is working on is lost and counts as missed. The round goes on with the others, and it is \
                 turned away until it joins again."
            }
            None => "Its part goes to another device. The run takes up again from the last snapshot.",
        };
        self.question.set(Some(Question {
            title: format!("Remove {}?", worker.name),
            detail: detail.to_owned(),
            yes: "Remove".to_owned(),
            then: Order::Remove(worker.id),
        }));
    }
}

#[component]
pub fn Organizer() -> impl IntoView {
    watch_title();
    let desk = Desk {
        token: StoredValue::new(token::take()),
        question: RwSignal::new(None),
        busy: RwSignal::new(false),
        error: RwSignal::new(None),
    };
    let may = desk.token.with_value(Option::is_some);
    let remove = may.then(|| Callback::new(move |worker: WorkerView| desk.ask_remove(&worker)));
    view! {
        <Header here=Place::Organizer/>
        <main class="page" id="main">
            <LinkLost/>
            <RunPanel heading="Organizing the run">
                {if may { view! { <Controls desk/> }.into_any() } else { view! { <NoToken/> }.into_any() }}
            </RunPanel>
            <Figures/>
            <Workers remove/>
            <Invite/>
        </main>
        <OrderError error=desk.error/>
        <Confirm question=desk.question answer=Callback::new(move |order| desk.give(order))/>
    }
}

#[component]
fn Controls(desk: Desk) -> impl IntoView {
    let phase = run_facts::phase(expect_context::<Live>());
    let off = move |fits: fn(Phase) -> bool| move || desk.busy.get() || !phase.get().is_some_and(fits);
    let start_text = move || if phase.get() == Some(Phase::Paused) { "Resume" } else { "Start" };
    view! {
        <div class="actions">
            <button
                type="button"
                class="button primary"
                data-testid="start"
                disabled=off(|phase| matches!(phase, Phase::Waiting | Phase::Paused))
                on:click=move |_| desk.give(Order::Start)
            >
                {start_text}
            </button>
            <button
                type="button"
                class="button"
                data-testid="pause"
                disabled=off(|phase| matches!(phase, Phase::Loading | Phase::Training))
                on:click=move |_| desk.give(Order::Pause)
            >
                "Pause"
            </button>
            <button
                type="button"
                class="button danger"
                data-testid="stop-run"
                disabled=off(|phase| !words::is_over(phase))
                on:click=move |_| desk.ask_stop()
            >
                "Stop"
            </button>
        </div>
    }
}

/// Why an order was not carried out.
#[component]
fn OrderError(error: RwSignal<Option<String>>) -> impl IntoView {
    let notice = move || {
        error.get().map(|words| {
            view! {
                <p class="notice" data-tone="bad">
                    <span data-testid="order-error">{words}</span>
                    <button type="button" class="button small" on:click=move |_| error.set(None)>"Close"</button>
                </p>
            }
        })
    };
    view! { <div class="toast" role="alert">{notice}</div> }
}

#[component]
fn NoToken() -> impl IntoView {
    view! {
        <p class="notice" data-tone="calm" data-testid="read-only">
            "You can look but not steer: this address lacks the organizer's token. The coordinator prints the full \
             link when it starts; open that one to get the buttons."
        </p>
    }
}
