//! The volunteer's page: what this is, one button, and what the device then does.

mod device;
mod join;
mod me;
mod part;
mod privacy;
mod staying;
mod work;

use std::time::Duration;

use leptos::prelude::*;

use self::{
    device::DeviceCard, join::JoinCard, me::Me, part::PartCard, privacy::PrivacyCard, staying::StayingCard,
    work::WorkCard,
};
use crate::{
    browser::{address::Wishes, device::Device, live::Live, tab::Tab, wake_lock::WakeLock, webgpu},
    chart::{LossCurve, ScoreCurve},
    components::{
        by_mode::ByMode,
        fact::sentences,
        header::{Header, Place},
        main_area::Main,
        phase::PhaseLine,
        progress::Progress,
        run_numbers::{
            FromNoiseStat, ParticipationStat, RoundStat, SpeedStat, StepStat, TrainingLossStat,
            ValidationLossStat,
        },
    },
    text::{
        device::{NoWebGpu, WebGpu},
        playground, run, volunteer as text,
    },
};

/// How long the browser may take to tell whether it has a graphics chip.
const GPU_LIMIT: Duration = Duration::from_secs(10);

/// The page.
#[component]
pub(crate) fn Volunteer() -> impl IntoView {
    let live = expect_context::<Live>();
    let me = Me::new(live, Tab::new());
    provide_context(me);
    me.title_follows();
    let wake_lock = WakeLock::new();
    let keep_awake = RwSignal::new(true);
    Effect::new(move |_| wake_lock.want(me.active.get() && keep_awake.get()));

    let device = Device::read();
    let browser = device.browser.clone();
    let crowd = move || live.run.with(|view| view.as_ref().and_then(run::crowd_at_work));
    let about = move || live.run.with(|view| view.as_ref().map_or(run::ASKING.to_owned(), run::about_run));
    view! {
        <Header here=Place::Volunteer keep_open=me.active/>
        <Main>
            <div class="intro">
                <h1>{move || run::volunteer_heading(live.phase.get(), live.mode.get())}</h1>
                <p class="lead">{about}</p>
                <PhaseLine><span>{crowd}</span></PhaseLine>
            </div>
            <div class="pair wide-left">
                <JoinCard wishes=Wishes::read() default_name=browser/>
                <DeviceCard device gpu=look_for_gpu()/>
            </div>
            <section class="card" aria-labelledby="curve-title">
                <h2 id="curve-title">{move || text::curve_title(live.mode.get())}</h2>
                <p class="quiet about">{sentences(live, run::task)}</p>
                <ByMode pipeline=pipeline_numbers block=block_numbers serve=serve_numbers/>
            </section>
            <PartCard/>
            <WorkCard/>
            <div class="pair">
                <PrivacyCard/>
                <StayingCard wake_lock keep_awake/>
            </div>
        </Main>
    }
}

/// A first look, which ends in words even where the browser does not answer.
fn look_for_gpu() -> RwSignal<WebGpu> {
    let gpu = RwSignal::new(WebGpu::Looking);
    wasm_bindgen_futures::spawn_local(async move { gpu.set(webgpu::look().await) });
    set_timeout(
        move || {
            gpu.maybe_update(|found| {
                let silent = *found == WebGpu::Looking;
                if silent {
                    *found = WebGpu::No(NoWebGpu::NoAnswer);
                }
                silent
            });
        },
        GPU_LIMIT,
    );
    gpu
}

fn serve_numbers() -> AnyView {
    view! { <p><a href="playground">{playground::HEADING}</a></p> }.into_any()
}

fn pipeline_numbers() -> AnyView {
    view! {
        <Progress/>
        <dl class="stats">
            <StepStat/>
            <TrainingLossStat/>
            <ValidationLossStat/>
            <SpeedStat/>
        </dl>
        <LossCurve/>
    }
    .into_any()
}

fn block_numbers() -> AnyView {
    view! {
        <Progress/>
        <dl class="stats">
            <RoundStat/>
            <FromNoiseStat/>
            <ParticipationStat/>
            <SpeedStat/>
        </dl>
        <ScoreCurve/>
    }
    .into_any()
}
