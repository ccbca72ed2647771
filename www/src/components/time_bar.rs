//! Where the time of a step went: a bar of shares, and optionally the numbers.

use leptos::prelude::*;
use protocol::message::Timings;

use crate::format::{percent, seconds};

const PARTS: usize = 6;

/// Name, key in the style sheet, seconds.
pub fn shares(timings: &Timings) -> [(&'static str, &'static str, f64); PARTS] {
    [
        ("Forward", "forward", timings.forward),
        ("Backward", "backward", timings.backward),
        ("Update", "optimizer", timings.optimizer),
        ("Sending", "send", timings.send),
        ("Receiving", "receive", timings.receive),
        ("Waiting", "wait", timings.wait),
    ]
}

/// The whole step.
pub fn total(timings: &Timings) -> f64 {
    shares(timings).iter().map(|(_, _, s)| s).sum()
}

#[component]
pub fn TimeBar(#[prop(into)] timings: Signal<Timings>) -> impl IntoView {
    let label = move || {
        let timings = timings.get();
        let parts = shares(&timings).map(|(name, _, s)| format!("{} {}", name.to_lowercase(), seconds(s)));
        format!("Last step, {}: {}", seconds(total(&timings)), parts.join(", "))
    };
    let bar = move |index: usize| {
        let (_, key, _) = shares(&Timings::default())[index];
        let width = move || {
            let timings = timings.get();
            format!("{:.2}%", 100.0 * shares(&timings)[index].2 / total(&timings).max(1e-9))
        };
        view! { <span class="time-part" data-part=key style:width=width></span> }
    };
    view! { <div class="time-bar" role="img" aria-label=label>{(0..PARTS).map(bar).collect_view()}</div> }
}

#[component]
pub fn TimeTable(#[prop(into)] timings: Signal<Timings>) -> impl IntoView {
    let row = move |index: usize| {
        let (name, key, _) = shares(&Timings::default())[index];
        let value = move || shares(&timings.get())[index].2;
        view! {
            <tr>
                <th scope="row"><span class="swatch" data-part=key></span>{name}</th>
                <td>{move || seconds(value())}</td>
                <td>{move || percent(value() / total(&timings.get()).max(1e-9))}</td>
            </tr>
        }
    };
    view! {
        <table class="time-table">
            <caption class="hidden">"Time of the last step by kind of work"</caption>
            <tbody>
                {(0..PARTS).map(row).collect_view()}
                <tr class="sum">
                    <th scope="row">"Whole step"</th>
                    <td>{move || seconds(total(&timings.get()))}</td>
                    <td></td>
                </tr>
            </tbody>
        </table>
    }
}
