//! The pipeline: each position with its device, in the order in which activations pass through.

use leptos::prelude::*;
use protocol::spec::ModelSpec;

use super::{chip::Chip, model_strip::ModelStrip, time_bar::TimeBar};
use crate::{
    browser::live::Live,
    state::{
        activity,
        mode::Mode,
        places::{Position, positions},
        shares::total,
    },
    text::{
        Words, capital,
        numbers::seconds,
        pipeline as text,
        worker::{self, name},
    },
};

/// A position with the words that depend on the whole run.
#[derive(Clone, PartialEq)]
struct Place {
    position: Position,
    name: String,
    status: Words,
    model: ModelSpec,
}

/// All positions.
#[component]
pub(crate) fn Pipeline() -> impl IntoView {
    let live = expect_context::<Live>();
    let places = Memo::new(move |_| {
        let link = live.link.get();
        live.run.with(|run| {
            let Some(run) = run else { return Vec::new() };
            let mode = Mode::of(&run.run).text();
            let place = |position: Position| Place {
                name: name(&position.worker, run),
                status: worker::status(Some(activity::of_worker(&position.worker, run.phase, link)), mode),
                model: run.run.model.clone(),
                position,
            };
            positions(run).into_iter().map(place).collect()
        })
    });
    let order = move || live.mode.get().map(|mode| mode.text().order());
    let usage = move || live.run.with(|run| run.as_ref().and_then(text::utilisation));
    let cards = move || places.get().into_iter().map(|place| view! { <PlaceCard place/> }).collect_view();
    view! {
        <section class="card" aria-labelledby="pipeline-title">
            <h2 id="pipeline-title">{text::TITLE}</h2>
            <p class="quiet">{order}{usage}</p>
            <ol class="pipeline" data-testid="pipeline">{cards}</ol>
            <p class="quiet" hidden=move || places.with(|places| !places.is_empty())>{text::EMPTY}</p>
        </section>
    }
}

#[component]
fn PlaceCard(place: Place) -> impl IntoView {
    let Place { position, name, status, model } = place;
    let notes = text::notes(&position);
    let Position { hop, worker, slowest, .. } = position;
    let hops = vec![hop.clone()];
    let part = capital(&text::part(&hops, &model));
    let timings = worker.timings;
    let has_stepped = total(&timings) > 0.0;
    let notes: Vec<_> = notes.into_iter().map(|words| view! { <p class="place-note">{words}</p> }).collect();
    let fact = |name: &'static str, value: String| view! { <div><dt>{name}</dt><dd>{value}</dd></div> };
    view! {
        <li class="place" data-slowest=slowest.then_some("")>
            <div class="place-top">
                <span class="place-number" aria-hidden="true">{hop.index + 1}</span>
                <h3>{name}</h3>
                <Chip text=status.title tone=status.tone/>
            </div>
            <p class="quiet">{worker::kind(&worker)}</p>
            <ModelStrip model=model hops=hops/>
            <p class="place-part">{part}</p>
            {has_stepped.then(|| view! { <TimeBar timings=timings/> })}
            <dl class="facts">
                {has_stepped.then(|| fact(worker::STEP, seconds(total(&timings))))}
                {has_stepped.then(|| fact(worker::COMPUTING, seconds(timings.busy())))}
                {fact(worker::ROUND_TRIP, worker::round_trip(&worker))}
                {fact(worker::MEMORY_IN_USE, worker::memory(&worker))}
                {fact(worker::LINK, worker::link(&worker))}
                {worker::pressure(&worker).map(|words| fact(worker::LOAD, words.to_owned()))}
            </dl>
            {notes}
        </li>
    }
}
