//! The state of the run in numbers and as a curve, for organizers and observers.

use leptos::prelude::*;

use crate::{
    browser::title,
    chart::LossCurve,
    components::{chip::Chip, progress::Progress, stat::Stat},
    format::{count, rate},
    live::Live,
    run_facts::{self, fact, sentences},
    words,
};

#[component]
pub fn RunPanel(
    heading: &'static str,
    /// Controls, or words in their place.
    children: Children,
) -> impl IntoView {
    let live = expect_context::<Live>();
    let about = sentences(live, |run| format!("{} {}", words::run(run), words::task(run)));
    view! {
        <div class="run-head">
            <div>
                <h1>{heading}</h1>
                <p class="state-line" role="status" aria-live="polite">
                    <span data-testid="phase"><Chip text=run_facts::phase_text(live) tone=run_facts::phase_tone(live)/></span>
                    " "
                    <span data-testid="reason">{run_facts::reason(live)}</span>
                </p>
            </div>
            <div class="controls">{children()}</div>
        </div>
        <section class="card" aria-labelledby="run-title">
            <h2 id="run-title">"The run"</h2>
            <p class="quiet">{about}</p>
            <Progress/>
            <RunStats/>
            <LossCurve/>
        </section>
    }
}

#[component]
fn RunStats() -> impl IntoView {
    let live = expect_context::<Live>();
    let devices =
        fact(live, |run| count(run.workers.iter().filter(|worker| !worker.hops.is_empty()).count() as u64));
    let spares = fact(live, |run| {
        let spares = run.workers.iter().filter(|worker| worker.hops.is_empty()).count() as u64;
        format!("{}; {} or more needed", words::spares(spares), count(run.workers_wanted.into()))
    });
    let snapshot_note =
        fact(live, |run| run.snapshot_step.map_or("", |_| "the run can go on from there").to_owned());
    let snapshot = fact(live, |run| {
        run.snapshot_step.map_or("none yet".to_owned(), |step| format!("step {}", count(step)))
    });
    view! {
        <dl class="stats">
            <Stat name="Step" id="step" value=fact(live, run_facts::step) note=fact(live, run_facts::steps)/>
            <Stat name="Training loss" id="train-loss" value=fact(live, run_facts::train_loss) note="nats per token"/>
            <Stat name="Validation loss" id="validation-loss" value=fact(live, run_facts::validation_loss) note="on text held back"/>
            <Stat name="Speed" id="tokens-per-second" value=fact(live, |run| rate(run.tokens_per_second)) note="tokens per second"/>
            <Stat name="Devices at work" id="devices" value=devices note=spares/>
            <Stat name="Last snapshot" id="snapshot" value=snapshot note=snapshot_note/>
        </dl>
    }
}

/// Keeps step and loss in the tab's title.
pub fn watch_title() {
    let live = expect_context::<Live>();
    Effect::new(move |_| {
        live.run.with(|run| match run {
            Some(run) => {
                title::set(&format!("{} · step {} · Cohort", words::phase(run.phase).0, count(run.step)))
            }
            None => title::set("Cohort"),
        });
    });
}
