//! What this device has done, and where its time goes.

use leptos::prelude::*;
use protocol::{message::Timings, view::WorkerView};

use crate::{
    components::{
        stat::Stat,
        time_bar::{TimeBar, TimeTable},
    },
    format::{bytes, count, plural, seconds},
    live::Live,
    session::Work,
    tab::Tab,
};

#[component]
pub fn WorkCard(tab: Tab) -> impl IntoView {
    let live = expect_context::<Live>();
    let work = move |read: fn(&Work) -> String, none: &'static str| {
        Signal::derive(move || {
            tab.session.with(|session| session.work.as_ref().map_or(none.to_owned(), read))
        })
    };
    // What the coordinator has counted, not what this page believes.
    let known = move |read: fn(&WorkerView) -> String, none: &'static str| {
        Signal::derive(move || {
            let id = tab.session.with(|session| session.worker);
            live.run.with(|run| {
                let me = run.as_ref().and_then(|run| run.workers.iter().find(|worker| Some(worker.id) == id));
                me.map_or(none.to_owned(), read)
            })
        })
    };
    let timings = Memo::new(move |_| -> Timings {
        tab.session.with(|session| session.work.as_ref().map(|work| work.timings).unwrap_or_default())
    });
    view! {
        <section class="card" aria-labelledby="work-title">
            <h2 id="work-title">"Your work"</h2>
            <dl class="stats">
                <Stat
                    name="Accepted"
                    id="accepted"
                    value=known(|me| count(me.accepted_micro_batches), "0")
                    note="micro-batches, counted by the coordinator"
                />
                <Stat
                    name="Steps with you"
                    id="my-steps"
                    value=work(|work| count(work.steps), "0")
                    note=work(|work| format!("in {}", plural(work.micro_batches, "micro-batch", "micro-batches")), "none yet")
                />
                <Stat name="Sent" id="bytes-sent" value=work(|work| bytes(work.bytes_sent), "0 B") note="since you joined"/>
                <Stat
                    name="Received"
                    id="bytes-received"
                    value=work(|work| bytes(work.bytes_received), "0 B")
                    note="since you joined"
                />
                <Stat
                    name="Round trip"
                    id="rtt"
                    value=known(|me| me.rtt_ms.map_or("–".to_owned(), |ms| seconds(ms / 1e3)), "–")
                    note="to the coordinator and back"
                />
            </dl>
            <h3>"Where the time of your last step went"</h3>
            <TimeBar timings/>
            <div class="pair">
                <TimeTable timings/>
                <p class="quiet">
                    "Forward: guessing. Backward: working out what to change. Update: changing it. Sending: handing \
                     the results to the network. Receiving: unpacking what came. Waiting: for the other devices, which is normal."
                </p>
            </div>
        </section>
    }
}
