//! What this device is and can do.

use leptos::prelude::*;
use protocol::spec::Backend;

use super::me::Me;
use crate::{
    browser::device::Device,
    text::device::{self as text, WebGpu},
};

/// The card.
#[component]
pub(crate) fn DeviceCard(device: Device, gpu: RwSignal<WebGpu>) -> impl IntoView {
    let session = expect_context::<Me>().tab.session;
    let found = Memo::new(move |_| {
        session.with(|session| session.backends.iter().find(|b| b.backend == Backend::WebGpu).cloned())
    });
    let webgpu = Memo::new(move |_| text::webgpu(found.get(), gpu.get()));
    let trains_on = move || session.with(|session| text::trains_on(session.profile.as_ref()));
    view! {
        <section class="card" aria-labelledby="device-title">
            <h2 id="device-title">{text::TITLE}</h2>
            <dl class="facts column">
                <div><dt>{text::BROWSER}</dt><dd data-testid="browser">{device.browser}</dd></div>
                <div><dt>{text::PROCESSOR}</dt><dd>{text::cores(device.cores)}</dd></div>
                <div><dt>{text::MEMORY}</dt><dd>{text::memory(device.memory_gigabytes)}</dd></div>
                <div>
                    <dt>{text::WEBGPU}</dt>
                    <dd data-testid="webgpu">
                        {move || webgpu.get().0}<span class="under">{move || webgpu.get().1}</span>
                    </dd>
                </div>
                <div><dt>{text::TRAINS_ON}</dt><dd data-testid="backend">{trains_on}</dd></div>
            </dl>
        </section>
    }
}
