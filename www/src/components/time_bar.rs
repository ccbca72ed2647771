//! Where the time of a step or of a round went: a bar of shares, and optionally the numbers.

use leptos::prelude::*;
use protocol::message::Timings;

use crate::{
    state::shares::{Share, Span, total},
    text::{
        figures as text,
        numbers::{percent, seconds},
    },
};

fn part_of_whole(share: Share, timings: &Timings) -> f64 {
    share.seconds(timings) / total(timings).max(1e-9)
}

/// The bar.
#[component]
pub(crate) fn TimeBar(#[prop(into)] timings: Signal<Timings>, #[prop(optional)] of: Span) -> impl IntoView {
    let label = move || text::bar_label(of, &timings.get());
    let part = move |share: Share| {
        let width = move || format!("{:.2}%", 100.0 * part_of_whole(share, &timings.get()));
        view! { <span class="time-part" data-part=share.key() style:width=width></span> }
    };
    let parts = of.shares().iter().copied().map(part).collect_view();
    view! { <div class="time-bar" role="img" aria-label=label>{parts}</div> }
}

/// The numbers.
#[component]
pub(crate) fn TimeTable(#[prop(into)] timings: Signal<Timings>, #[prop(optional)] of: Span) -> impl IntoView {
    let row = move |share: Share| {
        view! {
            <tr>
                <th scope="row"><span class="swatch" data-part=share.key()></span>{text::share(share)}</th>
                <td>{move || seconds(share.seconds(&timings.get()))}</td>
                <td>{move || percent(part_of_whole(share, &timings.get()))}</td>
            </tr>
        }
    };
    view! {
        <table class="time-table">
            <caption class="hidden">{text::table_caption(of)}</caption>
            <tbody>
                {of.shares().iter().copied().map(row).collect_view()}
                <tr class="sum">
                    <th scope="row">{text::whole(of)}</th>
                    <td>{move || seconds(total(&timings.get()))}</td>
                    <td></td>
                </tr>
            </tbody>
        </table>
    }
}
