//! The playground: the model continues a text, and what it wrote as it learned.

use leptos::prelude::*;
use protocol::serving::ServingView;
use wasm_bindgen_futures::spawn_local;
use web_sys::AbortController;

use crate::{
    browser::{
        completions::{self, Wish},
        focus,
        live::Live,
        served::Served,
        token,
    },
    components::{
        announce::Announce,
        header::{Header, Place},
        main_area::Main,
        phase::PhaseLine,
    },
    state::{
        mode::Mode,
        writing::{Stage, Writing},
    },
    text::playground as text,
};

/// Id of the result's heading, where the focus goes when the button goes away.
const RESULT: &str = "result-title";
const USUAL_LENGTH: u32 = 120;
const USUAL_TEMPERATURE: &str = "0.8";

/// The page.
#[component]
pub(crate) fn Playground() -> impl IntoView {
    let served = expect_context::<Served>();
    let model = move || {
        let about = |view: &ServingView| Some(text::about_model(view.model.as_ref()?, view.place));
        served.view.with(|view| view.as_ref().and_then(about)).unwrap_or_default()
    };
    view! {
        <Header here=Place::Playground/>
        <Main>
            <div class="intro">
                <h1>{text::HEADING}</h1>
                <PhaseLine/>
                <p class="quiet" data-testid="about-model">{model}</p>
            </div>
            <Write/>
            <Ages/>
        </Main>
    }
}

/// What the form says.
#[derive(Clone, Copy)]
struct Form {
    prompt: RwSignal<String>,
    length: RwSignal<String>,
    temperature: RwSignal<String>,
    top_p: RwSignal<String>,
    seed: RwSignal<String>,
    chunk: RwSignal<String>,
}

impl Form {
    /// What is asked for. The browser has checked the numbers; one that is left out is the usual one.
    fn wish(self, token: Option<String>) -> Wish {
        let number =
            |field: RwSignal<String>, usual: f64| field.get_untracked().trim().parse().unwrap_or(usual);
        Wish {
            prompt: self.prompt.get_untracked(),
            length: number(self.length, f64::from(USUAL_LENGTH)) as u32,
            temperature: number(self.temperature, 0.8),
            top_p: number(self.top_p, 1.0),
            seed: self.seed.get_untracked().trim().parse().ok(),
            chunk: number(self.chunk, 1.0) as u32,
            token,
        }
    }
}

#[component]
fn Write() -> impl IntoView {
    let served = expect_context::<Served>();
    let form = Form {
        prompt: RwSignal::new(String::new()),
        length: RwSignal::new(USUAL_LENGTH.to_string()),
        temperature: RwSignal::new(USUAL_TEMPERATURE.to_owned()),
        top_p: RwSignal::new("1".to_owned()),
        seed: RwSignal::new(String::new()),
        chunk: RwSignal::new("1".to_owned()),
    };
    let organizer = token::recall();
    let writing = RwSignal::new(Writing::default());
    let abort = StoredValue::new_local(None::<AbortController>);
    // What was asked for, which stands before what came of it.
    let asked = RwSignal::new(String::new());

    let stage = Memo::new(move |_| writing.with(|writing| writing.stage.clone()));
    let under_way = Memo::new(move |_| stage.with(Stage::is_under_way));
    let is_organizer = organizer.is_some();
    let why_not = Memo::new(move |_| {
        served.view.with(|view| match view {
            Some(view) => text::why_not(view, is_organizer),
            None => None,
        })
    });
    let most = move || served.view.with(|view| view.as_ref().map_or(USUAL_LENGTH, |view| view.most_tokens));
    Effect::new(move |_| {
        let most = most();
        if form.length.get_untracked().parse().is_ok_and(|length: u32| length > most) {
            form.length.set(most.to_string());
        }
    });

    let stop = move || {
        abort.with_value(|abort| {
            if let Some(abort) = abort {
                completions::stop(abort, writing);
            }
        });
    };
    on_cleanup(stop);
    let pressed = move |event: web_sys::SubmitEvent| {
        event.prevent_default();
        if under_way.get_untracked() {
            return;
        }
        let Ok(controller) = AbortController::new() else { return };
        let wish = form.wish(organizer.clone());
        asked.set(wish.prompt.clone());
        writing.set(Writing::asked());
        focus::to(RESULT);
        abort.set_value(Some(controller.clone()));
        spawn_local(async move {
            completions::write(wish, &controller, writing).await;
            // Meanwhile it may have been switched off, or have learned more.
            served.ask();
        });
    };
    let stopped = move |_| {
        focus::to(RESULT);
        stop();
    };
    let number = move |id: &'static str,
                       name: &'static str,
                       note: Option<&'static str>,
                       value: RwSignal<String>,
                       range: [&'static str; 3]| {
        let [least, most, step] = range;
        view! {
            <label>
                <span>{name}</span>
                <input
                    type="number"
                    inputmode="decimal"
                    min=least
                    max=most
                    step=step
                    data-testid=id
                    prop:value=value
                    on:input=move |event| value.set(event_target_value(&event))
                />
                {note.map(|note| view! { <span class="under">{note}</span> })}
            </label>
        }
    };
    let sweep = Memo::new(move |_| served.view.with(|view| view.as_ref()?.model.as_ref()?.sweep));
    // Of block mode only: how many tokens a sweep writes.
    let chunk = move || {
        let most = sweep.get()?;
        let input = move |event| form.chunk.set(event_target_value(&event));
        Some(view! {
            <label>
                <span>{text::CHUNK}</span>
                <input
                    type="number"
                    inputmode="numeric"
                    min="1"
                    max=most.to_string()
                    step="1"
                    data-testid="chunk"
                    prop:value=form.chunk
                    on:input=input
                />
                <span class="under">{text::CHUNK_NOTE}</span>
            </label>
        })
    };
    let has_text = move || stage.with(|stage| *stage != Stage::Idle);
    let words = Memo::new(move |_| text::stage(&stage.get()));
    view! {
        <section class="card" aria-labelledby="write-title">
            <h2 id="write-title">{text::WRITE_TITLE}</h2>
            {move || why_not.get().map(|words| view! {
                <p class="notice" data-tone="calm" data-testid="why-not">{words}</p>
            })}
            <form class="write-form" on:submit=pressed>
                <label>
                    <span>{text::PROMPT}</span>
                    <textarea
                        rows="4"
                        required=true
                        data-testid="prompt"
                        prop:value=form.prompt
                        on:input=move |event| form.prompt.set(event_target_value(&event))
                    ></textarea>
                </label>
                <label class="short">
                    <span>{text::LENGTH}</span>
                    <input
                        type="number"
                        inputmode="numeric"
                        required=true
                        min="1"
                        max=move || most().to_string()
                        step="1"
                        data-testid="length"
                        prop:value=form.length
                        on:input=move |event| form.length.set(event_target_value(&event))
                    />
                </label>
                <details>
                    <summary>{text::SETTINGS}</summary>
                    <div class="settings">
                        {number("temperature", text::TEMPERATURE, Some(text::TEMPERATURE_NOTE), form.temperature, ["0", "2", "any"])}
                        {number("top-p", text::TOP_P, Some(text::TOP_P_NOTE), form.top_p, ["0", "1", "any"])}
                        {number("seed", text::SEED, Some(text::SEED_NOTE), form.seed, ["0", "9007199254740991", "1"])}
                        {chunk}
                    </div>
                </details>
                <div class="actions">
                    <button
                        type="submit"
                        class="button primary"
                        data-testid="write"
                        disabled=move || under_way.get() || why_not.get().is_some()
                    >
                        {text::WRITE}
                    </button>
                    <button
                        type="button"
                        class="button"
                        data-testid="stop-writing"
                        hidden=move || !under_way.get()
                        on:click=stopped
                    >
                        {text::STOP}
                    </button>
                </div>
            </form>
            <div class="result" hidden=move || !has_text()>
                <h3 id=RESULT tabindex="-1">{text::RESULT}</h3>
                <p class="quiet" data-testid="stage">{words}</p>
                // Not a live region: a screen reader would speak at every token. Its end is announced.
                <p class="written" data-testid="written">
                    <span class="asked">{asked}</span>
                    <span data-testid="added">{move || writing.with(|writing| writing.text.clone())}</span>
                </p>
            </div>
            <Announce text=words/>
        </section>
    }
}

#[component]
fn Ages() -> impl IntoView {
    let Served { samples, .. } = expect_context();
    let learns = expect_context::<Live>();
    let learns = move || learns.mode.get() != Some(Mode::Serve);
    let note = move || {
        samples.with(|samples| {
            (!samples.samples.is_empty())
                .then(|| text::ages_note(&samples.prompt))
                .unwrap_or(text::NO_AGES.into())
        })
    };
    let texts = move || {
        samples.with(|samples| {
            let texts = samples.samples.iter().map(|sample| {
                view! {
                    <li>
                        <h3>{text::age(sample.step)}</h3>
                        <p class="written">{sample.text.clone()}</p>
                    </li>
                }
            });
            texts.collect_view()
        })
    };
    view! {
        <section class="card" aria-labelledby="ages-title" data-testid="ages" hidden=move || !learns()>
            <h2 id="ages-title">{text::AGES_TITLE}</h2>
            <p class="quiet">{note}</p>
            <ul class="ages">{texts}</ul>
        </section>
    }
}
