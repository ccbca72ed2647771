//! What this device is and can do.

use leptos::prelude::*;
use protocol::{spec::Backend, tab::BackendFinding};

use crate::{
    browser::{device::Device, webgpu::WebGpu},
    format::{plural, seconds},
    tab::Tab,
    words,
};

#[component]
pub fn DeviceCard(device: Device, gpu: RwSignal<WebGpu>, tab: Tab) -> impl IntoView {
    let unknown = "The browser does not tell";
    let cores = device.cores.map_or(unknown.to_owned(), |n| plural(n.into(), "core", "cores"));
    let memory = device.memory_gigabytes.map_or(unknown.to_owned(), |gigabytes| {
        // Browsers stop counting at 8 GB, or newer ones at 32.
        format!("About {gigabytes} GB{}", if gigabytes == 8.0 || gigabytes >= 32.0 { " or more" } else { "" })
    });
    // The training program looks more closely than the page can; its finding stands once it is there.
    let found = Memo::new(move |_| {
        tab.session.with(|session| session.backends.iter().find(|b| b.backend == Backend::WebGpu).cloned())
    });
    let webgpu = move || match found.get() {
        Some(BackendFinding { unusable: None, device, .. }) => ("Yes", device),
        Some(BackendFinding { unusable: Some(why), .. }) => ("No", words::sentence(&why)),
        None => match gpu.get() {
            WebGpu::Looking => ("…", String::new()),
            WebGpu::Yes(name) => ("Yes", name),
            WebGpu::No(why) => ("No", why),
        },
    };
    let trains_on = move || {
        tab.session.with(|session| match &session.profile {
            Some(profile) => format!(
                "{}: {} a layer, forward and backward",
                words::capital(words::backend(profile.backend)),
                seconds(profile.layer.total())
            ),
            None => "Measured when you join".to_owned(),
        })
    };
    view! {
        <section class="card" aria-labelledby="device-title">
            <h2 id="device-title">"This device"</h2>
            <dl class="facts column">
                <div><dt>"Browser"</dt><dd data-testid="browser">{device.browser}</dd></div>
                <div><dt>"Processor"</dt><dd>{cores}</dd></div>
                <div><dt>"Memory"</dt><dd>{memory}</dd></div>
                <div>
                    <dt>"WebGPU"</dt>
                    <dd data-testid="webgpu">
                        {move || webgpu().0}<span class="under">{move || webgpu().1}</span>
                    </dd>
                </div>
                <div><dt>"Trains on"</dt><dd data-testid="backend">{trains_on}</dd></div>
            </dl>
        </section>
    }
}
