//! Who is let in: the same in both modes.

use std::time::Duration;

use protocol::{
    message::{Hello, Message, Welcome},
    refusal::Refusal,
};

use super::{
    event::{Action, Record, WorkerId},
    machine::Settings,
    roster::Roster,
};

/// Lets a worker in with a welcome and asks it to measure itself; or says why not.
pub fn admit(
    roster: &mut Roster,
    settings: &Settings,
    over: bool,
    now: Duration,
    (worker, hello, token): (WorkerId, Hello, String),
    out: &mut Vec<Action>,
) -> Result<(), Refusal> {
    if over {
        return Err(Refusal::RunOver);
    }
    let workers = roster.len() as u32;
    if workers >= settings.max_workers {
        return Err(Refusal::Full { workers });
    }
    out.push(Action::Record(Record::WorkerJoined { worker, name: hello.name.clone() }));
    roster.join(worker, hello, now);
    let welcome = Welcome {
        worker: worker.0,
        token,
        run: settings.run.clone(),
        heartbeat_ms: settings.heartbeat.as_millis() as u32,
        lease_ms: settings.lease.as_millis() as u32,
    };
    out.push(Action::Send { worker, message: Message::Welcome(welcome) });
    out.push(Action::Send { worker, message: Message::Benchmark });
    Ok(())
}
