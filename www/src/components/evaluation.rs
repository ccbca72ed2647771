//! Block mode: the newest measurement of the whole model, with all its controls.

use leptos::prelude::*;
use protocol::evaluation::Scores;

use crate::{format::plural, live::Live, scores};

#[component]
pub fn Evaluation() -> impl IntoView {
    let live = expect_context::<Live>();
    let newest = Memo::new(move |_| -> Option<(u64, Scores)> {
        live.run.with(|run| run.as_ref()?.rounds.as_ref()?.evaluation.clone())
    });
    let missing = move || newest.with(Option::is_none);
    let when = move || {
        newest.with(|newest| match newest {
            Some((rounds, _)) => format!(
                "Measured after {} on text that is never trained on, in nats per token: how much the right token \
                 surprises the model, so less is better. The headline alone would mislead, so here is all that it must \
                 be held against.",
                plural(*rounds, "round", "rounds")
            ),
            None => "The model has not been measured yet.".to_owned(),
        })
    };
    let verdict = move || newest.with(|newest| scores::verdict(&newest.as_ref()?.1));
    let rows = move || {
        newest.with(|newest| {
            let (_, scores) = newest.as_ref()?;
            Some(scores::rows(scores).into_iter().map(|row| view! { <Row row/> }).collect_view())
        })
    };
    view! {
        <section class="card" aria-labelledby="evaluation-title">
            <h2 id="evaluation-title">"How good the model is, measured"</h2>
            <p class="quiet">{when}</p>
            <p data-testid="verdict">{verdict}</p>
            <table class="scores" role="table" data-testid="scores" hidden=missing>
                <thead role="rowgroup">
                    <tr role="row">
                        <th role="columnheader" scope="col">"Measured"</th>
                        <th role="columnheader" scope="col">"Nats per token"</th>
                        <th role="columnheader" scope="col">"What it says"</th>
                    </tr>
                </thead>
                <tbody role="rowgroup">{rows}</tbody>
            </table>
        </section>
    }
}

#[component]
fn Row(row: scores::Row) -> impl IntoView {
    let scores::Row { name, values, by_block, leaky, meaning } = row;
    let cell = if by_block {
        let one = |(index, value): (usize, String)| {
            view! { <li><span class="under">{format!("Block {}", index + 1)}</span>{value}</li> }
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
                {leaky.then(|| view! { <span class="under">"leaky: sees the answer through the noise"</span> })}
            </th>
            <td role="cell">{cell}</td>
            <td role="cell" class="meaning">{meaning}</td>
        </tr>
    }
}
