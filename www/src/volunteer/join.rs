//! What this device is doing, in words, and the button that starts or stops it.

use leptos::prelude::*;

use crate::{
    block_words,
    browser::{address::Wishes, name},
    components::time_bar::total,
    format::{count, seconds},
    live::Live,
    run_facts,
    session::Stage,
    tab::{Join, Tab},
    words::{self, Tone, Words},
};

#[component]
pub fn JoinCard(tab: Tab, wishes: Wishes, default_name: String) -> impl IntoView {
    let live = expect_context::<Live>();
    let phase = run_facts::phase(live);
    let given = wishes.name.clone().or_else(name::recall);
    let called = RwSignal::new(name::tidy(&given.unwrap_or(default_name.clone())));

    let stage = Memo::new(move |_| tab.session.with(|session| session.shown(phase.get())));
    let active = Memo::new(move |_| stage.with(Stage::is_active));
    let known = run_facts::block_mode(live);
    let block_mode = Memo::new(move |_| known.get() == Some(true));
    // A run that is over takes nobody; the words for that come before the words for an idle device.
    let over = Memo::new(move |_| !active.get() && phase.get().is_some_and(words::is_over));
    // A memo of its own: read straight from two memos of which one depends on the other, the attribute stayed behind.
    let state = Memo::new(move |_| if over.get() { "over" } else { stage.with(Stage::name) });
    let said = Memo::new(move |_| {
        stage.with(|stage| match (over.get(), block_mode.get()) {
            (true, _) => over_words(stage),
            (false, true) => block_words::stage(stage),
            (false, false) => words::stage(stage),
        })
    });
    let fault = move || {
        stage.with(|stage| match stage {
            Stage::Crashed(words) if !words.is_empty() => Some(words.clone()),
            _ => None,
        })
    };

    // Beside the state, not in it: a screen reader must not speak at every step.
    let now = move || {
        if block_mode.get() {
            return tab.session.with(|session| live.run.with(|run| block_words::now(session, run.as_ref())));
        }
        tab.session.with(|session| match (&session.stage, &session.work, &session.run) {
            (Stage::Training, Some(work), Some(run)) => Some(format!(
                "{}. Step {} took {}.",
                words::capital(&words::part(&session.hops, &run.model)),
                count(work.step),
                seconds(total(&work.timings))
            )),
            (Stage::Training | Stage::Loading, _, Some(run)) => {
                Some(format!("{}.", words::capital(&words::part(&session.hops, &run.model))))
            }
            _ => None,
        })
    };

    let round =
        Memo::new(move |_| tab.session.with(|session| session.round.as_ref().map(block_words::share)));
    let refusal = Memo::new(move |_| {
        tab.session.with(|session| {
            let refusal = session.rounds.refusal.as_ref()?;
            // While it is news: until a round after it has been judged.
            let judged = session.round.as_ref().is_none_or(|round| round.number <= refusal.0 + 1);
            judged.then(|| block_words::refusal(refusal))
        })
    });

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
    }
    let pressed = move |event: web_sys::SubmitEvent| {
        // The form is for the Enter key; it never goes anywhere.
        event.prevent_default();
        name::keep(&name::tidy(&called.get_untracked()));
        join();
    };
    view! {
        <section class="card join" data-tone=move || said.with(|words| words.tone.name()) aria-labelledby="state-title">
            <div
                class="state"
                role="status"
                aria-live="polite"
                data-testid="state"
                data-state=move || state.get()
            >
                <h2 id="state-title">
                    <span class="state-mark" aria-hidden="true"></span>
                    <span data-testid="state-title">{move || said.with(|words| words.title.clone())}</span>
                </h2>
                <p data-testid="state-detail">{move || said.with(|words| words.detail.clone())}</p>
                {move || fault().map(|words| view! { <p class="quiet fault">{words}</p> })}
            </div>
            <form class="join-form" on:submit=pressed hidden=move || active.get() || over.get()>
                <button type="submit" class="button primary big" data-testid="join">
                    {move || stage.with(button)}
                </button>
                <label>
                    <span>"Name, shown to the organizer"</span>
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
                class="button big"
                data-testid="stop"
                hidden=move || !active.get()
                disabled=move || stage.with(|stage| *stage == Stage::Stopping)
                on:click=move |_| tab.stop()
            >
                "Stop"
            </button>
            <p class="now" data-testid="now">{now}</p>
            <progress
                class="progress"
                max="1"
                value=move || round.get().unwrap_or_default().to_string()
                hidden=move || round.get().is_none()
                data-testid="round-progress"
                aria-label="Progress of the round on this device"
            ></progress>
            <div role="status" aria-live="polite" data-testid="refusal">
                {move || refusal.get().map(|words| view! { <p class="notice" data-tone="warn">{words}</p> })}
            </div>
            <p class="quiet" hidden=over>"You can leave at any time. Closing the tab is enough."</p>
        </section>
    }
}

fn button(stage: &Stage) -> &'static str {
    match stage {
        Stage::Crashed(_) => "Restart",
        Stage::Refused(_) | Stage::Failed(_) | Stage::Unloadable => "Try again",
        Stage::Left => "Join again",
        _ => "Join",
    }
}

fn over_words(stage: &Stage) -> Words {
    match stage {
        Stage::Over(_) => words::stage(stage),
        _ => Words {
            tone: Tone::Calm,
            title: "This run is over".to_owned(),
            detail: "There is nothing left to train here. What came of it is below.".to_owned(),
        },
    }
}
