//! The volunteer's page: what this is, one button, and what the device then does.

use leptos::prelude::*;
use protocol::view::RoundsView;

use crate::{
    block_words,
    browser::{
        address::Wishes,
        device::Device,
        title,
        wake_lock::WakeLock,
        webgpu::{self, WebGpu},
    },
    chart::{LossCurve, ScoreCurve},
    components::{
        chip::Chip,
        header::{Header, Place},
        link_lost::LinkLost,
        progress::Progress,
        stat::Stat,
    },
    format::{count, rate},
    live::Live,
    run_facts::{self, fact, sentences},
    tab::Tab,
    volunteer::{
        device::DeviceCard, join::JoinCard, part::PartCard, privacy::PrivacyCard, staying::StayingCard,
        work::WorkCard,
    },
    words,
};

#[component]
pub fn Volunteer() -> impl IntoView {
    let live = expect_context::<Live>();
    let tab = Tab::new();
    let wake_lock = WakeLock::new();
    let keep_awake = RwSignal::new(true);
    let device = Device::read();
    let gpu = RwSignal::new(WebGpu::Looking);
    wasm_bindgen_futures::spawn_local(async move { gpu.set(webgpu::look().await) });

    let active = Memo::new(move |_| tab.session.with(|session| session.stage.is_active()));
    Effect::new(move |_| wake_lock.want(active.get() && keep_awake.get()));
    title_follows(tab);

    let block_mode = run_facts::block_mode(live);
    let numbers = move || {
        Some(if block_mode.get()? {
            view! { <RoundNumbers/> }.into_any()
        } else {
            view! { <StepNumbers/> }.into_any()
        })
    };
    let browser = device.browser.clone();
    view! {
        <Header here=Place::Volunteer keep_open=active/>
        <main class="page" id="main">
            <LinkLost/>
            <div class="intro">
                <h1>"Help train a language model"</h1>
                <p class="lead">{move || about(live)}</p>
                <p class="state-line">
                    <span data-testid="phase"><Chip text=run_facts::phase_text(live) tone=run_facts::phase_tone(live)/></span>
                    " "
                    <span data-testid="reason">{run_facts::reason(live)}</span>
                    " "
                    <span>{move || live.run.with(|run| run.as_ref().and_then(words::crowd_at_work))}</span>
                </p>
            </div>
            <div class="pair wide-left">
                <JoinCard tab wishes=Wishes::read() default_name=browser/>
                <DeviceCard device gpu tab/>
            </div>
            <section class="card" aria-labelledby="curve-title">
                <h2 id="curve-title">"How the model is doing"</h2>
                <p class="quiet">{sentences(live, words::task)}</p>
                <Progress/>
                {numbers}
            </section>
            <PartCard tab/>
            <WorkCard tab/>
            <div class="pair">
                <PrivacyCard tab/>
                <StayingCard wake_lock keep_awake active/>
            </div>
        </main>
    }
}

#[component]
fn StepNumbers() -> impl IntoView {
    let live = expect_context::<Live>();
    view! {
        <dl class="stats">
            <Stat name="Step" id="step" value=fact(live, run_facts::step) note=fact(live, run_facts::steps)/>
            <Stat name="Training loss" id="train-loss" value=fact(live, run_facts::train_loss) note="nats per token"/>
            <Stat
                name="Validation loss"
                id="validation-loss"
                value=fact(live, run_facts::validation_loss)
                note="on text held back"
            />
            <Stat
                name="Speed"
                id="tokens-per-second"
                value=fact(live, |run| rate(run.tokens_per_second))
                note="tokens per second"
            />
        </dl>
        <LossCurve/>
    }
}

#[component]
fn RoundNumbers() -> impl IntoView {
    let live = expect_context::<Live>();
    let of = move |read: fn(&RoundsView) -> String| run_facts::of_rounds(live, read);
    view! {
        <dl class="stats">
            <Stat name="Round" id="round" value=of(|rounds| count(rounds.round)) note=fact(live, run_facts::rounds)/>
            <Stat
                name="Cross-entropy from noise"
                id="validation-loss"
                value=of(|rounds| block_words::from_noise(rounds).0)
                note=of(|rounds| format!("nats per token, {}", block_words::from_noise(rounds).1))
            />
            <Stat
                name="Participation"
                id="participation"
                value=of(|rounds| block_words::participation(rounds).0)
                note=of(|rounds| block_words::participation(rounds).1)
            />
            <Stat
                name="Speed"
                id="tokens-per-second"
                value=fact(live, |run| rate(run.tokens_per_second))
                note="tokens per second"
            />
        </dl>
        <ScoreCurve/>
    }
}

fn about(live: Live) -> String {
    live.run.with(|run| match run {
        Some(run) => words::run(run),
        None => "Asking the coordinator what is being trained …".to_owned(),
    })
}

/// A tab in the background still tells how it fares.
fn title_follows(tab: Tab) {
    Effect::new(move |_| {
        tab.session.with(|session| {
            let state = words::stage(&session.stage).title;
            let round = session.round.as_ref().map(|round| format!("round {}", count(round.number + 1)));
            let done = session.work.as_ref().map(|work| format!("step {}", count(work.step)));
            match round.or(done) {
                _ if session.stage == crate::session::Stage::Idle => {
                    title::set("Cohort: help train a language model")
                }
                Some(done) => title::set(&format!("{state} · {done} · Cohort")),
                None => title::set(&format!("{state} · Cohort")),
            }
        });
    });
}
