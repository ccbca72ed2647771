//! Numbers of the run that several pages show.

use leptos::prelude::*;

use super::{
    fact::{fact, of_rounds},
    stat::Stat,
};
use crate::{
    browser::live::Live,
    text::{figures, round, run},
};

/// Steps done, of how many, and the time that is left.
#[component]
pub(crate) fn StepStat() -> impl IntoView {
    let live = expect_context::<Live>();
    view! { <Stat name=figures::STEP id="step" value=fact(live, run::step) note=fact(live, run::steps)/> }
}

/// Loss of the newest step.
#[component]
pub(crate) fn TrainingLossStat() -> impl IntoView {
    let live = expect_context::<Live>();
    view! { <Stat name=figures::TRAINING_LOSS id="train-loss" value=fact(live, run::train_loss) note=figures::NATS/> }
}

/// Loss on held-out text.
#[component]
pub(crate) fn ValidationLossStat() -> impl IntoView {
    let value = fact(expect_context::<Live>(), run::validation_loss);
    view! { <Stat name=figures::VALIDATION_LOSS id="validation-loss" value note=figures::HELD_OUT/> }
}

/// Tokens per second.
#[component]
pub(crate) fn SpeedStat() -> impl IntoView {
    let value = fact(expect_context::<Live>(), run::speed);
    view! { <Stat name=figures::SPEED id="tokens-per-second" value note=figures::TOKENS_PER_SECOND/> }
}

/// Rounds done, of how many, and the time that is left.
#[component]
pub(crate) fn RoundStat() -> impl IntoView {
    let live = expect_context::<Live>();
    let value = of_rounds(live, |rounds| crate::text::numbers::count(rounds.round));
    view! { <Stat name=figures::ROUND id="round" value note=fact(live, run::rounds)/> }
}

/// Cross-entropy from noise in the newest evaluation.
#[component]
pub(crate) fn FromNoiseStat() -> impl IntoView {
    let live = expect_context::<Live>();
    let value = of_rounds(live, |rounds| round::from_noise(rounds).0);
    let note = of_rounds(live, |rounds| figures::nats_and(&round::from_noise(rounds).1));
    view! { <Stat name=figures::FROM_NOISE id="validation-loss" value note/> }
}

/// Accepted deltas over assigned replicas.
#[component]
pub(crate) fn ParticipationStat() -> impl IntoView {
    let live = expect_context::<Live>();
    let value = of_rounds(live, |rounds| round::participation(rounds).0);
    let note = of_rounds(live, |rounds| round::participation(rounds).1);
    view! { <Stat name=figures::PARTICIPATION id="participation" value note/> }
}
