//! What this device is doing, in words, and the button that starts or stops it.

use leptos::prelude::*;

use super::me::Me;
use crate::{
    browser::{address::Wishes, clock::now, focus, live::Live, name, participation, tab::Join},
    components::announce::Announce,
    state::{activity::Activity, session::Session},
    text::{
        activity::{announcement, button},
        round, volunteer as text,
    },
};

/// Id of the heading, where the focus goes when a button goes away.
const HEADING: &str = "state-title";

/// The card.
#[component]
pub(crate) fn JoinCard(wishes: Wishes, default_name: String) -> impl IntoView {
    let live = expect_context::<Live>();
    let me = expect_context::<Me>();
    let Me { tab, activity, active, words, mode, .. } = me;
    let given = wishes.name.clone().or_else(name::recall);
    let called = RwSignal::new(name::tidy(&given.unwrap_or(default_name.clone())));

    // A memo of its own: read straight from two memos of which one depends on the other, the attribute stayed behind.
    let state = Memo::new(move |_| activity.with(Activity::name));
    let over = Memo::new(move |_| activity.with(|activity| matches!(activity, Activity::Over { .. })));
    let title = Memo::new(move |_| words.with(|words| words.title.clone()));
    let detail = Memo::new(move |_| words.with(|words| words.detail.clone()));
    let announced =
        Signal::derive(move || activity.with(|activity| words.with(|words| announcement(activity, words))));
    let fault = move || {
        activity.with(|activity| match activity {
            Activity::Crashed(words) if !words.is_empty() => Some(words.clone()),
            _ => None,
        })
    };
    // Beside the state, not announced with it: a screen reader must not speak at every step.
    let at_present =
        move || tab.session.with(|session| live.run.with(|run| mode.get().text().now(session, run.as_ref())));
    let share = Memo::new(move |_| tab.session.with(|session| session.round.as_ref().map(round::share)));
    let refusal = Memo::new(move |_| tab.session.with(round::news));

    let automatic = wishes.join;
    let join = move || {
        let typed = name::tidy(&called.get_untracked());
        let called = if typed.is_empty() { default_name.clone() } else { typed };
        tab.join(Join {
            name: called,
            backend: wishes.backend,
            allow_software_gpu: wishes.software_gpu,
            memory_bytes: wishes.memory_bytes,
        });
    };
    if automatic {
        join();
    } else if participation::recall() {
        tab.session.update(|session| session.rejoin(now()));
    }
    Effect::new(move |_| {
        if let Some(takes_part) = tab.session.with(Session::takes_part) {
            participation::keep(takes_part);
        }
    });
    let join_again = join.clone();
    Effect::new(move |_| {
        if activity.with(|activity| *activity == Activity::Rejoining { in_seconds: 0.0 }) {
            join_again();
        }
    });
    let cancelled = move |_| {
        focus::to(HEADING);
        participation::keep(false);
        tab.session.update(Session::cancel);
    };
    let rejoining =
        Memo::new(move |_| activity.with(|activity| matches!(activity, Activity::Rejoining { .. })));
    let pressed = move |event: web_sys::SubmitEvent| {
        // The form is for the Enter key; it never goes anywhere.
        event.prevent_default();
        name::keep(&name::tidy(&called.get_untracked()));
        // Before the button is hidden and loses the focus to the top of the page.
        focus::to(HEADING);
        join();
    };
    let stopped = move |_| {
        focus::to(HEADING);
        tab.stop();
    };
    let stopping = move || activity.with(|activity| *activity == Activity::Stopping);
    view! {
        <section class="card join" data-tone=move || words.with(|words| words.tone.name()) aria-labelledby=HEADING>
            <div class="state" data-testid="state" data-state=move || state.get()>
                <h2 id=HEADING tabindex="-1">
                    <span class="state-mark" aria-hidden="true"></span>
                    <span data-testid="state-title">{title}</span>
                </h2>
                <p data-testid="state-detail">{detail}</p>
                {move || fault().map(|words| view! { <p class="quiet fault">{words}</p> })}
            </div>
            <Announce text=announced/>
            <form class="join-form" on:submit=pressed hidden=move || active.get() || over.get()>
                <button type="submit" class="button primary big" data-testid="join">
                    {move || activity.with(button)}
                </button>
                <label>
                    <span>{text::NAME}</span>
                    <input
                        type="text"
                        maxlength=name::LONGEST.to_string()
                        autocomplete="nickname"
                        spellcheck="false"
                        data-testid="name"
                        prop:value=called
                        on:input=move |event| called.set(event_target_value(&event))
                    />
                </label>
            </form>
            <button
                type="button"
                class="button"
                data-testid="cancel"
                hidden=move || !rejoining.get()
                on:click=cancelled
            >
                {text::CANCEL}
            </button>
            <button
                type="button"
                class="button big"
                data-testid="stop"
                hidden=move || !active.get()
                disabled=stopping
                on:click=stopped
            >
                {text::STOP}
            </button>
            <p class="now" data-testid="now">{at_present}</p>
            <progress
                class="progress"
                max="1"
                value=move || share.get().unwrap_or_default().to_string()
                hidden=move || share.get().is_none()
                data-testid="round-progress"
                aria-label=text::ROUND_PROGRESS
            ></progress>
            <div role="status" aria-live="polite" data-testid="refusal">
                {move || refusal.get().map(|words| view! { <p class="notice" data-tone="warn">{words}</p> })}
            </div>
            <p class="quiet" hidden=move || over.get()>{text::LEAVE}</p>
        </section>
    }
}
