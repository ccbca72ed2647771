//! The pipeline: each stage with its device, in the order in which activations pass through.

use leptos::prelude::*;
use protocol::{
    spec::{Hop, ModelSpec},
    view::{RunView, WorkerView},
};

use super::{
    chip::Chip,
    model_strip::ModelStrip,
    time_bar::{TimeBar, total},
};
use crate::{
    format::{percent, seconds},
    live::Live,
    words,
};

/// One place of the pipeline and who holds it.
#[derive(Clone, PartialEq)]
struct Place {
    hop: Hop,
    worker: WorkerView,
    /// Its device has the longest work per step.
    slowest: bool,
    /// The number of the place this device holds as well.
    also: Option<u32>,
}

fn places(run: &RunView) -> Vec<Place> {
    let times: Vec<f64> =
        run.workers.iter().filter(|w| !w.hops.is_empty()).map(|w| w.timings.busy()).collect();
    let longest = times.iter().copied().fold(0.0, f64::max);
    let shortest = times.iter().copied().fold(f64::INFINITY, f64::min);
    let mut places: Vec<Place> = Vec::new();
    for worker in &run.workers {
        for hop in &worker.hops {
            let other = worker.hops.iter().find(|other| other.index != hop.index);
            places.push(Place {
                hop: hop.clone(),
                // A lead within the noise is no lead.
                slowest: longest > 1.1 * shortest && worker.timings.busy() == longest,
                worker: worker.clone(),
                also: other.map(|other| other.index + 1),
            });
        }
    }
    places.sort_by_key(|place| place.hop.index);
    places
}

/// How well the devices are used: share of time at work, and mean over longest work.
fn use_of_devices(run: &RunView) -> Option<String> {
    Some(format!(
        "In the last step the devices computed {} of the time. Balance between them: {}, where 100 % means that all \
         take equally long.",
        percent(run.efficiency?),
        percent(run.balance?)
    ))
}

#[component]
pub fn Pipeline() -> impl IntoView {
    let live = expect_context::<Live>();
    let places = Memo::new(move |_| live.run.with(|run| run.as_ref().map(places).unwrap_or_default()));
    let model = Memo::new(move |_| live.run.with(|run| run.as_ref().map(|run| run.run.model.clone())));
    let usage = move || live.run.with(|run| run.as_ref().and_then(use_of_devices));
    let cards = move || {
        let model = model.get()?;
        let cards = places.get().into_iter().map(|place| view! { <PlaceCard place model=model.clone()/> });
        Some(cards.collect_view())
    };
    view! {
        <section class="card" aria-labelledby="pipeline-title">
            <h2 id="pipeline-title">"The pipeline"</h2>
            <p class="quiet">
                "Activations pass through the devices in this order, gradients come back the other way. "{usage}
            </p>
            <ol class="pipeline" data-testid="pipeline">{cards}</ol>
            <p class="quiet" hidden=move || places.with(|places| !places.is_empty())>
                "No device holds a part of the model yet."
            </p>
        </section>
    }
}

#[component]
fn PlaceCard(place: Place, model: ModelSpec) -> impl IntoView {
    let Place { hop, worker, slowest, also } = place;
    let (state, tone) = words::worker_state(worker.state);
    let hops = vec![hop.clone()];
    let part = words::capital(&words::part(&hops, &model));
    let timings = worker.timings;
    view! {
        <li class="place" data-slowest=slowest.then_some("")>
            <div class="place-top">
                <span class="place-number" aria-hidden="true">{hop.index + 1}</span>
                <h3>{worker.name.clone()}</h3>
                <Chip text=state tone=tone/>
            </div>
            <p class="quiet">{words::kind(&worker)}</p>
            <ModelStrip model=model hops=hops/>
            <p class="place-part">{part}</p>
            <TimeBar timings=timings/>
            <dl class="facts">
                <div><dt>"Step"</dt><dd>{seconds(total(&timings))}</dd></div>
                <div><dt>"Computing"</dt><dd>{seconds(timings.busy())}</dd></div>
                <div><dt>"Round trip"</dt><dd>{worker.rtt_ms.map_or("–".to_owned(), |ms| seconds(ms / 1e3))}</dd></div>
                <div><dt>"Memory in use"</dt><dd>{words::memory(&worker)}</dd></div>
                <div><dt>"Link"</dt><dd>{words::link(&worker)}</dd></div>
                {words::pressure(&worker).map(|words| view! { <div><dt>"Load"</dt><dd>{words}</dd></div> })}
            </dl>
            {words::pace(&worker).map(|words| view! { <p class="place-note">{words}</p> })}
            {slowest.then(|| view! { <p class="place-note">"The slowest: the others wait for it."</p> })}
            {also.map(|also| view! { <p class="place-note">{format!("The same device as place {also}.")}</p> })}
        </li>
    }
}
