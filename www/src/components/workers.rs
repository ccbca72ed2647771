//! All devices of the run as a table; a list of cards on a phone.

use leptos::prelude::*;
use protocol::view::{RunView, WorkerView};

use super::{chip::Chip, fact::sentences};
use crate::{
    browser::live::Live,
    state::{activity, mode::Mode},
    text::{
        mode::{Column, ModeText},
        organizer::remove_label,
        run, worker as text,
    },
};

/// Id of the heading, where the focus goes when a row goes away.
pub(crate) const HEADING: &str = "workers-title";

/// The table.
#[component]
pub(crate) fn Workers(
    /// Asks to remove a device; None where the page only shows.
    #[prop(into)]
    remove: Signal<Option<Callback<WorkerView>>>,
) -> impl IntoView {
    let live = expect_context::<Live>();
    let ids = move || -> Vec<u64> {
        live.run.with(|run| run.iter().flat_map(|run| &run.workers).map(|worker| worker.id).collect())
    };
    let nobody = move || ids().is_empty();
    // The table is made anew when the mode becomes known, and never again.
    let table = move || {
        let mode = live.mode.get()?;
        let words = mode.text();
        let column = |column: Column| {
            view! { <th role="columnheader" scope="col" class="number">{column.name}</th> }
        };
        let action = move || {
            remove.get().map(|_| {
                view! { <th role="columnheader" scope="col"><span class="hidden">{text::ACTION}</span></th> }
            })
        };
        Some(view! {
            <table class="workers" role="table" data-testid="workers" hidden=nobody>
                <thead role="rowgroup">
                    <tr role="row">
                        <th role="columnheader" scope="col">{text::NAME}</th>
                        <th role="columnheader" scope="col">{text::RUNS_ON}</th>
                        <th role="columnheader" scope="col">{text::STATE}</th>
                        <th role="columnheader" scope="col">{words.part()}</th>
                        {words.columns().map(column).into_iter().collect_view()}
                        {action}
                    </tr>
                </thead>
                <tbody role="rowgroup">
                    <For each=ids key=|id| *id let:id>
                        <Row id remove mode/>
                    </For>
                </tbody>
            </table>
        })
    };
    view! {
        <section class="card" aria-labelledby=HEADING>
            <h2 id=HEADING tabindex="-1">{text::TITLE}</h2>
            <p class="quiet">{sentences(live, run::crowd)}</p>
            {table}
        </section>
    }
}

/// What a row says, worked out once for each change.
#[derive(Clone, PartialEq)]
struct Said {
    worker: WorkerView,
    name: String,
    held: String,
    status: activity::Status,
}

fn said(run: &RunView, id: u64, mode: &dyn ModeText, link: crate::state::link::Link) -> Option<Said> {
    let worker = run.workers.iter().find(|worker| worker.id == id)?;
    Some(Said {
        name: text::name(worker, run),
        held: mode.held(worker, run),
        status: activity::of_worker(worker, run.phase, link),
        worker: worker.clone(),
    })
}

#[component]
fn Row(id: u64, remove: Signal<Option<Callback<WorkerView>>>, mode: Mode) -> impl IntoView {
    let live = expect_context::<Live>();
    let words = mode.text();
    // The row stays while its numbers change: a button under a finger or with the focus must not be replaced.
    let row = Memo::new(move |_| {
        let link = live.link.get();
        live.run.with(|run| said(run.as_ref()?, id, words, link))
    });
    let cell = move |read: fn(&WorkerView) -> String| {
        move || row.with(|row| row.as_ref().map(|row| read(&row.worker)))
    };
    let name = move || row.with(|row| row.as_ref().map(|row| row.name.clone()));
    let held = move || row.with(|row| row.as_ref().map(|row| row.held.clone()));
    let status = Memo::new(move |_| row.with(|row| text::status(row.as_ref().map(|row| row.status), words)));
    let state = Signal::derive(move || status.get().title);
    let tone = Signal::derive(move || status.get().tone);
    let silence = move || row.with(|row| row.as_ref().and_then(|row| text::silence(&row.worker)));
    let number = move |column: Column| {
        view! { <td role="cell" data-label=column.name class="number">{cell(column.read)}</td> }
    };
    let button = move || {
        let remove = remove.get()?;
        let ask = move |_| {
            if let Some(row) = row.get_untracked() {
                remove.run(row.worker);
            }
        };
        let label = move || name().map(|name| remove_label(&name));
        Some(view! {
            <td role="cell" class="action">
                <button type="button" class="button small" data-testid=format!("remove-{id}") aria-label=label on:click=ask>
                    {text::REMOVE}
                </button>
            </td>
        })
    };
    view! {
        <tr role="row" data-testid=format!("worker-{id}")>
            <th role="rowheader" scope="row">{name}</th>
            <td role="cell" data-label=text::RUNS_ON>
                {cell(text::kind)}
                <span class="under">{cell(text::device)}</span>
            </td>
            <td role="cell" data-label=text::STATE>
                <Chip text=state tone=tone/>
                <span class="under">{silence}</span>
            </td>
            <td role="cell" data-label=words.part()>{held}</td>
            {words.columns().map(number).into_iter().collect_view()}
            {button}
        </tr>
    }
}
