//! Block mode: the newest evaluation of the whole model, with all its controls.

use leptos::prelude::*;
use protocol::evaluation::Scores;

use crate::{
    browser::live::Live,
    state::scores::verdict,
    text::{block, scores as text},
};

/// The evaluation as a table, with what it says about the headline.
#[component]
pub(crate) fn Evaluation() -> impl IntoView {
    let live = expect_context::<Live>();
    let newest = Memo::new(move |_| -> Option<(u64, Scores)> {
        live.run.with(|run| run.as_ref()?.rounds.as_ref()?.evaluation.clone())
    });
    let missing = move || newest.with(Option::is_none);
    let when = move || newest.with(|newest| text::when(newest.as_ref().map(|(rounds, _)| *rounds)));
    let says = move || newest.with(|newest| verdict(&newest.as_ref()?.1).map(text::verdict));
    let rows = move || {
        newest.with(|newest| {
            let (_, scores) = newest.as_ref()?;
            Some(text::rows(scores).into_iter().map(|row| view! { <Row row/> }).collect_view())
        })
    };
    view! {
        <section class="card" aria-labelledby="evaluation-title">
            <h2 id="evaluation-title">{text::TITLE}</h2>
            <p class="quiet">{when}</p>
            <p data-testid="verdict">{says}</p>
            <table class="scores" role="table" data-testid="scores" hidden=missing>
                <thead role="rowgroup">
                    <tr role="row">
                        <th role="columnheader" scope="col">{text::MEASURED}</th>
                        <th role="columnheader" scope="col">{text::UNIT}</th>
                        <th role="columnheader" scope="col">{text::MEANING}</th>
                    </tr>
                </thead>
                <tbody role="rowgroup">{rows}</tbody>
            </table>
        </section>
    }
}

#[component]
fn Row(row: text::Row) -> impl IntoView {
    let text::Row { name, values, by_block, leaky, meaning } = row;
    let cell = if by_block {
        let one = |(index, value): (usize, String)| {
            view! { <li><span class="under">{block::heading(index)}</span>{value}</li> }
        };
        view! { <ol class="score-list">{values.into_iter().enumerate().map(one).collect_view()}</ol> }
            .into_any()
    } else {
        view! { <b>{values.concat()}</b> }.into_any()
    };
    view! {
        <tr role="row">
            <th role="rowheader" scope="row">
                {name}
                {leaky.then(|| view! { <span class="under">{text::LEAKY}</span> })}
            </th>
            <td role="cell">{cell}</td>
            <td role="cell" class="meaning">{meaning}</td>
        </tr>
    }
}
