//! What this device has done, and where its time goes.

use leptos::prelude::*;
use protocol::{
    message::Timings,
    view::{ReplicaView, WorkerView},
};

use super::me::Me;
use crate::{
    components::{
        by_mode::ByMode,
        stat::Stat,
        time_bar::{TimeBar, TimeTable},
    },
    state::{
        session::{Rounds, Work},
        shares::Span,
    },
    text::{
        numbers::{NONE, bytes, count, seconds},
        round, volunteer as text, worker,
    },
};

/// The card.
#[component]
pub(crate) fn WorkCard() -> impl IntoView {
    view! {
        <ByMode
            pipeline=|| view! { <StepWork/> }.into_any()
            block=|| view! { <RoundWork/> }.into_any()
            // Tokens are not counted by whose device computed them.
            serve=|| ().into_any()
        />
    }
}

/// What the coordinator has counted of this device, not what this page believes.
fn listed(me: Me, read: fn(&WorkerView) -> String, none: &'static str) -> Signal<String> {
    Signal::derive(move || me.listed.with(|me| me.as_ref().map_or(none.to_owned(), read)))
}

fn accepted(me: Me) -> Signal<String> {
    Signal::derive(move || count(me.accepted.get()))
}

/// Rounds of block mode.
#[component]
fn RoundWork() -> impl IntoView {
    let me = expect_context::<Me>();
    let session = me.tab.session;
    let rounds = move |read: fn(&Rounds) -> String| {
        Signal::derive(move || session.with(|session| read(&session.rounds)))
    };
    let timings =
        Memo::new(move |_| -> Timings { session.with(|session| session.rounds.timings.unwrap_or_default()) });
    let refusal = move || session.with(|session| session.rounds.refusal.as_ref().map(round::refusal));
    view! {
        <section class="card" aria-labelledby="work-title">
            <h2 id="work-title">{text::WORK}</h2>
            <dl class="stats">
                <Stat name=text::ROUNDS_ACCEPTED id="accepted" value=accepted(me) note=text::ROUNDS_ACCEPTED_NOTE/>
                <Stat
                    name=text::REFUSED
                    id="refused"
                    value=listed(me, |me| replica(me, |replica| count(replica.refused)), "0")
                    note=listed(me, |me| replica(me, text::missed), "")
                />
                <Stat
                    name=text::LAST_ROUND
                    id="round-seconds"
                    value=listed(me, |me| replica(me, |r| r.round_seconds.map_or(NONE.to_owned(), seconds)), NONE)
                    note=text::LAST_ROUND_NOTE
                />
                <Stat
                    name=text::SENT
                    id="bytes-sent"
                    value=rounds(|rounds| bytes(rounds.bytes_sent))
                    note=text::SINCE_JOINED
                />
                <Stat
                    name=text::RECEIVED
                    id="bytes-received"
                    value=rounds(|rounds| bytes(rounds.bytes_received))
                    note=text::SINCE_JOINED
                />
                <RoundTripStat/>
            </dl>
            <p class="quiet" data-testid="last-refusal">{refusal}</p>
            <h3>{text::ROUND_TIME}</h3>
            <TimeBar timings of=Span::Round/>
            <div class="pair">
                <TimeTable timings of=Span::Round/>
                <p class="quiet">{text::ROUND_TIME_DETAIL}</p>
            </div>
        </section>
    }
}

fn replica(me: &WorkerView, read: fn(&ReplicaView) -> String) -> String {
    read(&me.replica.unwrap_or_default())
}

#[component]
fn RoundTripStat() -> impl IntoView {
    let value = listed(expect_context::<Me>(), worker::round_trip, NONE);
    view! { <Stat name=text::ROUND_TRIP id="rtt" value note=text::ROUND_TRIP_NOTE/> }
}

/// Steps of pipeline mode.
#[component]
fn StepWork() -> impl IntoView {
    let me = expect_context::<Me>();
    let session = me.tab.session;
    let work = move |read: fn(&Work) -> String, none: &'static str| {
        Signal::derive(move || session.with(|session| session.work.as_ref().map_or(none.to_owned(), read)))
    };
    let timings = Memo::new(move |_| -> Timings {
        session.with(|session| session.work.as_ref().map(|work| work.timings).unwrap_or_default())
    });
    view! {
        <section class="card" aria-labelledby="work-title">
            <h2 id="work-title">{text::WORK}</h2>
            <dl class="stats">
                <Stat name=text::ACCEPTED id="accepted" value=accepted(me) note=text::ACCEPTED_NOTE/>
                <Stat
                    name=text::MY_STEPS
                    id="my-steps"
                    value=work(|work| count(work.steps), "0")
                    note=work(text::micro_batches, text::NO_STEPS)
                />
                <Stat
                    name=text::SENT
                    id="bytes-sent"
                    value=work(|work| bytes(work.bytes_sent), "0 B")
                    note=text::SINCE_JOINED
                />
                <Stat
                    name=text::RECEIVED
                    id="bytes-received"
                    value=work(|work| bytes(work.bytes_received), "0 B")
                    note=text::SINCE_JOINED
                />
                <RoundTripStat/>
            </dl>
            <h3>{text::STEP_TIME}</h3>
            <TimeBar timings/>
            <div class="pair">
                <TimeTable timings/>
                <p class="quiet">{text::STEP_TIME_DETAIL}</p>
            </div>
        </section>
    }
}
