//! The state of the run in numbers and as a curve, for organizers and observers.

use leptos::prelude::*;

use crate::{
    browser::{live::Live, title},
    chart::{LossCurve, ParticipationCurve, ScoreCurve},
    components::{
        blocks::Blocks,
        by_mode::ByMode,
        evaluation::Evaluation,
        fact::{fact, of_rounds, sentences},
        phase::PhaseLine,
        pipeline::Pipeline,
        progress::Progress,
        run_numbers::{
            FromNoiseStat, ParticipationStat, RoundStat, SpeedStat, StepStat, TrainingLossStat,
            ValidationLossStat,
        },
        stat::Stat,
    },
    text::{figures, numbers::count, pages, playground, round, run},
};

/// The run: phase, numbers, curve.
#[component]
pub(crate) fn RunPanel(
    heading: &'static str,
    /// Controls, or words in their place.
    children: Children,
) -> impl IntoView {
    let about =
        sentences(expect_context::<Live>(), |view| format!("{} {}", run::about_run(view), run::task(view)));
    view! {
        <div class="run-head">
            <div>
                <h1>{heading}</h1>
                <PhaseLine/>
            </div>
            <div class="controls">{children()}</div>
        </div>
        <section class="card" aria-labelledby="run-title">
            <h2 id="run-title">{pages::RUN}</h2>
            <p class="quiet about">{about}</p>
            <ByMode pipeline=pipeline_numbers block=block_numbers serve=serve_numbers/>
        </section>
    }
}

fn pipeline_numbers() -> AnyView {
    view! { <Progress/> <RunStats/> <LossCurve/> }.into_any()
}

fn serve_numbers() -> AnyView {
    let live = expect_context::<Live>();
    view! {
        <dl class="stats">
            <Stat name=figures::DEVICES id="devices" value=fact(live, run::devices) note=fact(live, run::spares)/>
        </dl>
        <p><a href="playground">{playground::HEADING}</a></p>
    }
    .into_any()
}

fn block_numbers() -> AnyView {
    view! {
        <Progress/>
        <RoundStats/>
        <h3>{pages::PREDICTIONS}</h3>
        <ScoreCurve/>
        <h3>{pages::IN_TIME}</h3>
        <ParticipationCurve/>
    }
    .into_any()
}

/// How the model is split across the devices, and in block mode how good it is.
#[component]
pub(crate) fn Figures() -> impl IntoView {
    view! {
        <ByMode
            pipeline=|| view! { <Pipeline/> }.into_any()
            block=|| view! { <Blocks/> <Evaluation/> }.into_any()
            serve=|| view! { <Pipeline/> }.into_any()
        />
    }
}

#[component]
fn RunStats() -> impl IntoView {
    let live = expect_context::<Live>();
    view! {
        <dl class="stats">
            <StepStat/>
            <TrainingLossStat/>
            <ValidationLossStat/>
            <SpeedStat/>
            <Stat name=figures::DEVICES id="devices" value=fact(live, run::devices) note=fact(live, run::spares)/>
            <Stat name=figures::SNAPSHOT id="snapshot" value=fact(live, run::snapshot) note=fact(live, run::snapshot_note)/>
        </dl>
    }
}

#[component]
fn RoundStats() -> impl IntoView {
    let live = expect_context::<Live>();
    view! {
        <dl class="stats">
            <RoundStat/>
            <FromNoiseStat/>
            <Stat name=figures::LOCAL id="train-loss" value=fact(live, run::train_loss) note=figures::LOCAL_NOTE/>
            <SpeedStat/>
            <ParticipationStat/>
            <Stat
                name=figures::ROUND_TIME
                id="round-time"
                value=of_rounds(live, |rounds| round::round_time(rounds).0)
                note=of_rounds(live, |rounds| round::round_time(rounds).1)
            />
            <Stat
                name=figures::ACCEPTED_DELTAS
                id="accepted"
                value=of_rounds(live, |rounds| count(rounds.accepted))
                note=of_rounds(live, round::refused)
            />
            <Stat name=figures::DEVICES id="devices" value=fact(live, run::devices) note=fact(live, run::spares)/>
            <Stat
                name=figures::SENT_TO_DEVICES
                id="bytes-down"
                value=of_rounds(live, round::bytes_down)
                note=figures::FOR_ACCEPTED
            />
            <Stat
                name=figures::SENT_BACK
                id="bytes-up"
                value=of_rounds(live, round::bytes_up)
                note=figures::FOR_ACCEPTED
            />
        </dl>
    }
}

/// Keeps the run's phase and progress in the tab's title.
pub(crate) fn watch_title() {
    let live = expect_context::<Live>();
    Effect::new(move |_| {
        let link = live.link.get();
        live.run.with(|view| title::set(&run::tab_title(view.as_ref(), link)));
    });
}
