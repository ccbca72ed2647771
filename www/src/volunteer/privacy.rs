//! What leaves this device.

use leptos::prelude::*;

use crate::{tab::Tab, words};

#[component]
pub fn PrivacyCard(tab: Tab) -> impl IntoView {
    let hops = Memo::new(move |_| tab.session.with(|session| session.hops.clone()));
    let now = move || hops.with(|hops| (!hops.is_empty()).then(|| words::leaves(hops)));
    view! {
        <section class="card" aria-labelledby="privacy-title">
            <h2 id="privacy-title">"What leaves your device"</h2>
            <p data-testid="leaves">{now}</p>
            <ul class="list">
                <li>"Tables of numbers: activations, gradients, and the weights of your part, through the coordinator."</li>
                <li>"The name you gave, the kind of processor or graphics chip, and how fast and how large it is."</li>
                <li>"No files, no pictures, no text of yours. The page asks for none and has no access to them."</li>
            </ul>
            <p class="quiet">
                "The text that the model learns from comes from the coordinator and goes only to the devices with \
                 the first and the last part."
            </p>
        </section>
    }
}
