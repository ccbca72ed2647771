//! The link that brings people in, to copy or to scan.

use leptos::prelude::*;
use qrcodegen::{QrCode, QrCodeEcc};
use wasm_bindgen_futures::spawn_local;
use web_sys::{FocusEvent, HtmlInputElement};

use crate::browser::{address, clipboard, js::window};

#[component]
pub fn Invite() -> impl IntoView {
    let link = format!("{}/", address::origin());
    let copied = RwSignal::new("");
    let copy = {
        let link = link.clone();
        move |_| {
            let link = link.clone();
            spawn_local(async move {
                let done = clipboard::copy(&link).await;
                copied.set(if done {
                    "Copied."
                } else {
                    "The browser did not allow that. Select the link and copy it."
                });
            });
        }
    };
    let warning = if address::is_loopback() {
        Some(
            "This address only works on this computer. For phones and other computers, start the coordinator with \
             --listen 0.0.0.0:8080 and open this page at this computer's address in your network.",
        )
    } else if !window().is_secure_context() {
        Some(
            "This address is plain http. Browsers then keep WebGPU and the screen lock off, and devices train on \
             their processors. An https address, from a proxy in front of the coordinator, changes that.",
        )
    } else {
        None
    };
    view! {
        <section class="card invite" aria-labelledby="invite-title">
            <div>
                <h2 id="invite-title">"Invite devices"</h2>
                <p class="quiet">"Whoever opens this link can take part. There is nothing to install."</p>
                <div class="copy">
                    <input
                        type="text"
                        readonly
                        value=link.clone()
                        aria-label="Invitation link"
                        data-testid="invite-link"
                        on:focus=select_all
                    />
                    <button type="button" class="button" data-testid="copy-invite" on:click=copy>"Copy"</button>
                </div>
                <p class="quiet" role="status" aria-live="polite">{copied}</p>
                {warning.map(|words| view! { <p class="notice" data-tone="warn">{words}</p> })}
            </div>
            {warning.is_none().then(|| qr(&link))}
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
        <svg class="qr" viewBox=view_box role="img" aria-label="The same link as a QR code" shape-rendering="crispEdges">
            <path d=path />
        </svg>
    })
}
