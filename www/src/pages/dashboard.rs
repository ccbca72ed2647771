//! The state of the run in numbers and as a curve, for organizers and observers.

use leptos::prelude::*;
use protocol::view::RoundsView;

use crate::{
    block_words,
    browser::title,
    chart::{LossCurve, ParticipationCurve, ScoreCurve},
    components::{
        blocks::Blocks, chip::Chip, evaluation::Evaluation, pipeline::Pipeline, progress::Progress,
        stat::Stat,
    },
    format::{bytes, count, rate},
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
    let block_mode = run_facts::block_mode(live);
    let numbers = move || {
        Some(if block_mode.get()? {
            view! {
                <RoundStats/>
                <h3>"How well it guesses"</h3>
                <ScoreCurve/>
                <h3>"Devices that came in time"</h3>
                <ParticipationCurve/>
            }
            .into_any()
        } else {
            view! { <RunStats/> <LossCurve/> }.into_any()
        })
    };
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
            {numbers}
        </section>
    }
}

/// How the model is dealt to the devices, and in block mode how good it is.
#[component]
pub fn Figures() -> impl IntoView {
    let block_mode = run_facts::block_mode(expect_context::<Live>());
    move || {
        Some(if block_mode.get()? {
            view! { <Blocks/> <Evaluation/> }.into_any()
        } else {
            view! { <Pipeline/> }.into_any()
        })
    }
}

#[component]
fn RoundStats() -> impl IntoView {
    let live = expect_context::<Live>();
    let of = move |read: fn(&RoundsView) -> String| run_facts::of_rounds(live, read);
    let devices = fact(live, |run| count(run.workers.iter().filter_map(block_words::holds).count() as u64));
    let spares = fact(live, |run| {
        let idle = run.workers.iter().filter(|worker| block_words::holds(worker).is_none()).count() as u64;
        format!("{}; {} or more needed", words::spares(idle), count(run.workers_wanted.into()))
    });
    view! {
        <dl class="stats">
            <Stat name="Round" id="round" value=of(|rounds| count(rounds.round)) note=fact(live, run_facts::rounds)/>
            <Stat
                name="Cross-entropy from noise"
                id="validation-loss"
                value=of(|rounds| block_words::from_noise(rounds).0)
                note=of(|rounds| format!("nats per token, one draw, {}", block_words::from_noise(rounds).1))
            />
            <Stat
                name="Local cross-entropy"
                id="train-loss"
                value=fact(live, run_facts::train_loss)
                note="in training; leaky: it sees the answer through the noise"
            />
            <Stat name="Speed" id="tokens-per-second" value=fact(live, |run| rate(run.tokens_per_second)) note="tokens per second"/>
            <Stat
                name="Participation"
                id="participation"
                value=of(|rounds| block_words::participation(rounds).0)
                note=of(|rounds| block_words::participation(rounds).1)
            />
            <Stat
                name="Time of a round"
                id="round-time"
                value=of(|rounds| block_words::round_time(rounds).0)
                note=of(|rounds| block_words::round_time(rounds).1)
            />
            <Stat
                name="Work accepted"
                id="accepted"
                value=of(|rounds| count(rounds.accepted))
                note=of(|rounds| format!("{} refused", if rounds.refused == 0 { "none".to_owned() } else { count(rounds.refused) }))
            />
            <Stat name="Devices at work" id="devices" value=devices note=spares/>
            <Stat name="Sent to devices" id="bytes-down" value=of(|rounds| bytes(rounds.bytes_down)) note="for accepted work"/>
            <Stat name="Sent back" id="bytes-up" value=of(|rounds| bytes(rounds.bytes_up)) note="what they learned"/>
        </dl>
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
                let done = match &run.rounds {
                    Some(rounds) => format!("round {}", count(rounds.round)),
                    None => format!("step {}", count(run.step)),
                };
                title::set(&format!("{} · {done} · Cohort", words::phase(run.phase).0))
            }
            None => title::set("Cohort"),
        });
    });
}
