//! What this device has done, and where its time goes.

use leptos::prelude::*;
use protocol::{
    message::Timings,
    view::{ReplicaView, WorkerView},
};

use crate::{
    block_words,
    components::{
        stat::Stat,
        time_bar::{Of, TimeBar, TimeTable},
    },
    format::{bytes, count, plural, seconds},
    live::Live,
    run_facts,
    session::{Rounds, Work},
    tab::Tab,
};

#[component]
pub fn WorkCard(tab: Tab) -> impl IntoView {
    let block_mode = run_facts::block_mode(expect_context::<Live>());
    move || {
        Some(if block_mode.get()? {
            view! { <RoundWork tab/> }.into_any()
        } else {
            view! { <StepWork tab/> }.into_any()
        })
    }
}

/// What the coordinator has counted of this device, not what this page believes.
fn of_me(live: Live, tab: Tab, read: fn(&WorkerView) -> String, none: &'static str) -> Signal<String> {
    Signal::derive(move || {
        let id = tab.session.with(|session| session.worker);
        live.run.with(|run| {
            let me = run.as_ref().and_then(|run| run.workers.iter().find(|worker| Some(worker.id) == id));
            me.map_or(none.to_owned(), read)
        })
    })
}

/// Rounds of block mode.
#[component]
fn RoundWork(tab: Tab) -> impl IntoView {
    let live = expect_context::<Live>();
    let known = move |read, none| of_me(live, tab, read, none);
    let rounds = move |read: fn(&Rounds) -> String| {
        Signal::derive(move || tab.session.with(|session| read(&session.rounds)))
    };
    let timings = Memo::new(move |_| -> Timings {
        tab.session.with(|session| session.rounds.timings.unwrap_or_default())
    });
    let refusal =
        move || tab.session.with(|session| session.rounds.refusal.as_ref().map(block_words::refusal));
    view! {
        <section class="card" aria-labelledby="work-title">
            <h2 id="work-title">"Your work"</h2>
            <dl class="stats">
                <Stat
                    name="Rounds accepted"
                    id="accepted"
                    value=known(|me| replica(me, |replica| count(replica.accepted)), "0")
                    note="counted by the coordinator"
                />
                <Stat
                    name="Not taken"
                    id="refused"
                    value=known(|me| replica(me, |replica| count(replica.refused)), "0")
                    note=known(|me| replica(me, |replica| format!("and {} too late or not sent", count(replica.missed))), "")
                />
                <Stat
                    name="Last round"
                    id="round-seconds"
                    value=known(|me| replica(me, |replica| replica.round_seconds.map_or("–".to_owned(), seconds)), "–")
                    note="from its start to your answer"
                />
                <Stat name="Sent" id="bytes-sent" value=rounds(|rounds| bytes(rounds.bytes_sent)) note="since you joined"/>
                <Stat
                    name="Received"
                    id="bytes-received"
                    value=rounds(|rounds| bytes(rounds.bytes_received))
                    note="since you joined"
                />
                <Stat
                    name="Round trip"
                    id="rtt"
                    value=known(|me| me.rtt_ms.map_or("–".to_owned(), |ms| seconds(ms / 1e3)), "–")
                    note="to the coordinator and back"
                />
            </dl>
            <p class="quiet" data-testid="last-refusal">{refusal}</p>
            <h3>"Where the time of your last round went"</h3>
            <TimeBar timings of=Of::Round/>
            <div class="pair">
                <TimeTable timings of=Of::Round/>
                <p class="quiet">
                    "Computing: the local steps, each a try at some text and a small change of the block. Fetching: the \
                     block as it is now. Sending: what your device has learned."
                </p>
            </div>
        </section>
    }
}

fn replica(me: &WorkerView, read: fn(&ReplicaView) -> String) -> String {
    read(&me.replica.unwrap_or_default())
}

/// Steps of pipeline mode.
#[component]
fn StepWork(tab: Tab) -> impl IntoView {
    let live = expect_context::<Live>();
    let known = move |read, none| of_me(live, tab, read, none);
    let work = move |read: fn(&Work) -> String, none: &'static str| {
        Signal::derive(move || {
            tab.session.with(|session| session.work.as_ref().map_or(none.to_owned(), read))
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
