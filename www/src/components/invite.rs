//! The link that brings people in, to copy or to scan.

use leptos::prelude::*;
use qrcodegen::{QrCode, QrCodeEcc};
use wasm_bindgen_futures::spawn_local;
use web_sys::{FocusEvent, HtmlInputElement};

use crate::{
    browser::{address, clipboard, js::window, live::Live},
    state::facts::is_over,
    text::organizer as text,
};

/// The invitation, while the run still takes devices.
#[component]
pub(crate) fn Invite() -> impl IntoView {
    let phase = expect_context::<Live>().phase;
    let open = Memo::new(move |_| !phase.get().is_some_and(is_over));
    move || open.get().then(|| view! { <Card/> })
}

#[component]
fn Card() -> impl IntoView {
    let link = address::coordinator();
    let copied = RwSignal::new("");
    let copy = {
        let link = link.clone();
        move |_| {
            let link = link.clone();
            spawn_local(async move { copied.set(text::copied(clipboard::copy(&link).await)) });
        }
    };
    let warning =
        text::address_warning(address::is_loopback(), window().is_secure_context(), &address::port());
    let picture = warning.is_none().then(|| qr(&link));
    view! {
        <section class="card invite" aria-labelledby="invite-title">
            <div>
                <h2 id="invite-title">{text::INVITE}</h2>
                <p class="quiet">{text::INVITE_DETAIL}</p>
                <div class="copy">
                    <input
                        type="text"
                        readonly
                        value=link.clone()
                        aria-label=text::INVITE_LINK
                        data-testid="invite-link"
                        on:focus=select_all
                    />
                    <button type="button" class="button" data-testid="copy-invite" on:click=copy>{text::COPY}</button>
                </div>
                <p class="quiet" role="status" aria-live="polite">{copied}</p>
                {warning.map(|words| view! { <p class="notice" data-tone="warn">{words}</p> })}
            </div>
            {picture}
        </section>
    }
}

fn select_all(event: FocusEvent) {
    event_target::<HtmlInputElement>(&event).select();
}

/// The link as a picture for a phone's camera.
fn qr(link: &str) -> Option<impl IntoView + use<>> {
    let code = QrCode::encode_text(link, QrCodeEcc::Medium).ok()?;
    let size = code.size();
    let dark =
        (0..size).flat_map(|y| (0..size).map(move |x| (x, y))).filter(|(x, y)| code.get_module(*x, *y));
    let path: String = dark.map(|(x, y)| format!("M{x} {y}h1v1h-1z")).collect();
    // The quiet zone of four modules belongs to the code; scanners need it.
    let view_box = format!("-4 -4 {0} {0}", size + 8);
    Some(view! {
        <svg class="qr" viewBox=view_box role="img" aria-label=text::QR shape-rendering="crispEdges">
            <path d=path />
        </svg>
    })
}
