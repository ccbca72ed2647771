//! Where the time of a step went: a bar of shares, and optionally the numbers.

use leptos::prelude::*;
use protocol::message::Timings;

use crate::format::{percent, seconds};

/// What a bar is divided into.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Of {
    /// A step of pipeline mode.
    #[default]
    Step,
    /// A round of block mode.
    Round,
}

impl Of {
    fn name(self) -> &'static str {
        match self {
            Of::Step => "step",
            Of::Round => "round",
        }
    }

    fn shares(self, timings: &Timings) -> Vec<Share> {
        match self {
            Of::Step => shares(timings).to_vec(),
            Of::Round => vec![
                ("Computing", "forward", timings.busy()),
                ("Fetching", "receive", timings.receive),
                ("Sending", "send", timings.send),
            ],
        }
    }

    fn share(self, timings: &Timings, index: usize) -> Share {
        self.shares(timings).get(index).copied().unwrap_or_default()
    }

    fn count(self) -> usize {
        self.shares(&Timings::default()).len()
    }
}

/// Name, key in the style sheet, seconds.
type Share = (&'static str, &'static str, f64);

fn shares(timings: &Timings) -> [Share; 6] {
    [
        ("Forward", "forward", timings.forward),
        ("Backward", "backward", timings.backward),
        ("Update", "optimizer", timings.optimizer),
        ("Sending", "send", timings.send),
        ("Receiving", "receive", timings.receive),
        ("Waiting", "wait", timings.wait),
    ]
}

/// The whole step or round.
pub fn total(timings: &Timings) -> f64 {
    shares(timings).iter().map(|(_, _, s)| s).sum()
}

#[component]
pub fn TimeBar(#[prop(into)] timings: Signal<Timings>, #[prop(optional)] of: Of) -> impl IntoView {
    let label = move || {
        let timings = timings.get();
        let part = |(name, _, s): Share| format!("{} {}", name.to_lowercase(), seconds(s));
        let parts: Vec<String> = of.shares(&timings).into_iter().map(part).collect();
        format!("Last {}, {}: {}", of.name(), seconds(total(&timings)), parts.join(", "))
    };
    let bar = move |index: usize| {
        let (_, key, _) = of.share(&Timings::default(), index);
        let width = move || {
            let timings = timings.get();
            format!("{:.2}%", 100.0 * of.share(&timings, index).2 / total(&timings).max(1e-9))
        };
        view! { <span class="time-part" data-part=key style:width=width></span> }
    };
    view! { <div class="time-bar" role="img" aria-label=label>{(0..of.count()).map(bar).collect_view()}</div> }
}

#[component]
pub fn TimeTable(#[prop(into)] timings: Signal<Timings>, #[prop(optional)] of: Of) -> impl IntoView {
    let row = move |index: usize| {
        let (name, key, _) = of.share(&Timings::default(), index);
        let value = move || of.share(&timings.get(), index).2;
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
            <caption class="hidden">{format!("Time of the last {} by kind of work", of.name())}</caption>
            <tbody>
                {(0..of.count()).map(row).collect_view()}
                <tr class="sum">
                    <th scope="row">{format!("Whole {}", of.name())}</th>
                    <td>{move || seconds(total(&timings.get()))}</td>
                    <td></td>
                </tr>
            </tbody>
        </table>
    }
}
