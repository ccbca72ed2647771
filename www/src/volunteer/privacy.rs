//! What leaves this device.

use leptos::prelude::*;

use crate::{live::Live, run_facts, tab::Tab, words};

#[component]
pub fn PrivacyCard(tab: Tab) -> impl IntoView {
    let known = run_facts::block_mode(expect_context::<Live>());
    let block_mode = move || known.get() == Some(true);
    let numbers = move || {
        if block_mode() {
            "What it has learned: after each round, by how much every number of its block has changed, to the coordinator. \
             When it measures the model: the scores."
        } else {
            "Tables of numbers: activations, gradients, and the weights of your part, through the coordinator."
        }
    };
    let text = move || {
        if block_mode() {
            "The text that the model learns from comes from the coordinator, a few windows of it for each round. None of it \
             is sent back, and nothing on your device becomes part of it."
        } else {
            "The text that the model learns from comes from the coordinator and goes only to the devices with the first \
             and the last part."
        }
    };
    let hops = Memo::new(move |_| tab.session.with(|session| session.hops.clone()));
    let now = move || hops.with(|hops| (!hops.is_empty()).then(|| words::leaves(hops)));
    view! {
        <section class="card" aria-labelledby="privacy-title">
            <h2 id="privacy-title">"What leaves your device"</h2>
            <p data-testid="leaves">{now}</p>
            <ul class="list">
                <li data-testid="leaves-numbers">{numbers}</li>
                <li>"The name you gave, the kind of processor or graphics chip, and how fast and how large it is."</li>
                <li>"No files, no pictures, no text of yours. The page asks for none and has no access to them."</li>
            </ul>
            <p class="quiet">{text}</p>
        </section>
    }
}
