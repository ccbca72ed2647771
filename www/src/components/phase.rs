//! The phase of the run, and why it is in it.

use leptos::prelude::*;

use super::{announce::Announce, chip::Chip, fact::sentences};
use crate::{browser::live::Live, text::run};

/// A chip and a sentence; `children` stand after them.
#[component]
pub(crate) fn PhaseLine(#[prop(optional)] children: Option<Children>) -> impl IntoView {
    let live = expect_context::<Live>();
    let phase = Memo::new(move |_| run::phase(live.phase.get(), live.link.get()));
    let text = Signal::derive(move || phase.get().0.to_owned());
    let tone = Signal::derive(move || phase.get().1);
    let reason = sentences(live, run::reason);
    let announced = Signal::derive(move || format!("{}. {}", text.get(), reason.get()));
    view! {
        <p class="state-line">
            <span data-testid="phase"><Chip text tone/></span>
            " "
            <span data-testid="reason">{reason}</span>
            {children.map(|children| view! { " " {children()} })}
        </p>
        <Announce text=announced/>
    }
}
