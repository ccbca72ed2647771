//! All devices of the run as a table; a list of cards on a phone.

use leptos::prelude::*;
use protocol::view::{ReplicaView, WorkerView};

use super::{chip::Chip, time_bar::total};
use crate::{
    block_words,
    format::{about, bytes, count, seconds},
    live::Live,
    run_facts, words,
};

/// Silence that is worth a word, in seconds.
const SILENT: f64 = 5.0;

#[component]
pub fn Workers(
    /// Asked to remove a device; None where the page only shows.
    remove: Option<Callback<WorkerView>>,
) -> impl IntoView {
    let live = expect_context::<Live>();
    let ids = move || -> Vec<u64> {
        live.run.with(|run| run.iter().flat_map(|run| &run.workers).map(|worker| worker.id).collect())
    };
    let nobody = move || ids().is_empty();
    let known = run_facts::block_mode(live);
    let block_mode = Memo::new(move |_| known.get() == Some(true));
    let columns = move || {
        let column = |name: &'static str| {
            view! { <th role="columnheader" scope="col" class="number">{name}</th> }
        };
        let names = if block_mode.get() { BLOCK_COLUMNS } else { PIPELINE_COLUMNS };
        names.map(column).into_iter().collect_view()
    };
    view! {
        <section class="card" aria-labelledby="workers-title">
            <h2 id="workers-title">"Devices"</h2>
            <p class="quiet">{move || live.run.with(|run| run.as_ref().map(words::crowd))}</p>
            <table class="workers" role="table" data-testid="workers" hidden=nobody>
                <thead role="rowgroup">
                    <tr role="row">
                        <th role="columnheader" scope="col">"Name"</th>
                        <th role="columnheader" scope="col">"Runs on"</th>
                        <th role="columnheader" scope="col">"State"</th>
                        <th role="columnheader" scope="col">{move || if block_mode.get() { "Block" } else { "Part" }}</th>
                        {columns}
                        {remove.map(|_| view! {
                            <th role="columnheader" scope="col"><span class="hidden">"Action"</span></th>
                        })}
                    </tr>
                </thead>
                <tbody role="rowgroup">
                    <For each=ids key=|id| *id let:id>
                        <Row id remove block_mode/>
                    </For>
                </tbody>
            </table>
        </section>
    }
}

#[component]
fn Row(id: u64, remove: Option<Callback<WorkerView>>, block_mode: Memo<bool>) -> impl IntoView {
    let live = expect_context::<Live>();
    // The row stays while its numbers change: a button under a finger or with the focus must not be replaced.
    let worker = Memo::new(move |_| {
        live.run.with(|run| run.as_ref()?.workers.iter().find(|worker| worker.id == id).cloned())
    });
    let cell = move |read: fn(&WorkerView) -> String| move || worker.with(|worker| worker.as_ref().map(read));
    let part = move || {
        live.run.with(|run| {
            let run = run.as_ref()?;
            let worker = run.workers.iter().find(|worker| worker.id == id)?;
            if block_words::is_block_mode(run) {
                return Some(block_words::held(worker));
            }
            Some(words::capital(&words::part(&worker.hops, &run.run.model)))
        })
    };
    let state = move || {
        worker.with(|w| w.as_ref().map_or(("Gone", words::Tone::Calm), |w| words::worker_state(w.state)))
    };
    let silent = move || worker.with(|w| w.as_ref().map_or(0.0, |w| w.silent_seconds));
    let state_text = Signal::derive(move || state().0.to_owned());
    let state_tone = Signal::derive(move || state().1);
    let silence = move || (silent() > SILENT).then(|| format!("silent for {}", about(silent())));
    let numbers = move || {
        let number = |(label, read): (&'static str, fn(&WorkerView) -> String)| {
            view! { <td role="cell" data-label=label class="number">{cell(read)}</td> }
        };
        let reads: [fn(&WorkerView) -> String; 4] =
            if block_mode.get() { BLOCK_NUMBERS } else { PIPELINE_NUMBERS };
        let labels = if block_mode.get() { BLOCK_COLUMNS } else { PIPELINE_COLUMNS };
        labels.into_iter().zip(reads).map(number).collect_view()
    };
    let button = remove.map(|remove| {
        let name = cell(|worker| format!("Remove {}", worker.name));
        let ask = move |_| {
            if let Some(worker) = worker.get_untracked() {
                remove.run(worker);
            }
        };
        view! {
            <td role="cell" class="action">
                <button type="button" class="button small" data-testid=format!("remove-{id}") aria-label=name on:click=ask>
                    "Remove"
                </button>
            </td>
        }
    });
    view! {
        <tr role="row" data-testid=format!("worker-{id}")>
            <th role="rowheader" scope="row">{cell(|worker| worker.name.clone())}</th>
            <td role="cell" data-label="Runs on">
                {cell(words::kind)}
                <span class="under">{cell(|worker| worker.device.clone())}</span>
            </td>
            <td role="cell" data-label="State">
                <Chip text=state_text tone=state_tone/>
                <span class="under">{silence}</span>
            </td>
            <td role="cell" data-label=move || if block_mode.get() { "Block" } else { "Part" }>{part}</td>
            {numbers}
            {button}
        </tr>
    }
}

const PIPELINE_COLUMNS: [&str; 4] = ["Step", "Round trip", "Memory", "Accepted"];
const PIPELINE_NUMBERS: [fn(&WorkerView) -> String; 4] =
    [step, round_trip, words::memory, |worker| count(worker.accepted_micro_batches)];

const BLOCK_COLUMNS: [&str; 4] = ["Last round", "Received, sent", "Memory", "Accepted"];
const BLOCK_NUMBERS: [fn(&WorkerView) -> String; 4] = [
    |worker| of_replica(worker, |replica| replica.round_seconds.map_or("–".to_owned(), seconds)),
    |worker| {
        of_replica(worker, |replica| format!("{}, {}", bytes(replica.bytes_down), bytes(replica.bytes_up)))
    },
    words::memory,
    |worker| of_replica(worker, block_words::tally),
];

fn of_replica(worker: &WorkerView, read: fn(&ReplicaView) -> String) -> String {
    worker.replica.as_ref().map_or("–".to_owned(), read)
}

fn round_trip(worker: &WorkerView) -> String {
    worker.rtt_ms.map_or("–".to_owned(), |ms| seconds(ms / 1e3))
}

fn step(worker: &WorkerView) -> String {
    match total(&worker.timings) {
        0.0 => "–".to_owned(),
        time => seconds(time),
    }
}
