//! Who is let in, and with which welcome.

use std::time::Duration;

use protocol::{
    message::{Benchmark, Hello, Welcome},
    refusal::Refusal,
    worker_id::WorkerId,
};

use crate::{core::Turn, record::Record};

/// Lets a worker in with a welcome and asks it to measure itself.
///
/// # Errors
/// Why it is not let in: the run is over, or full.
pub(crate) fn admit<A>(
    turn: &mut Turn<'_, A>,
    worker: WorkerId,
    hello: Hello,
    token: String,
) -> Result<(), Refusal> {
    if turn.core.over.is_some() {
        return Err(Refusal::RunOver);
    }
    let workers = turn.core.roster.len() as u32;
    if workers >= turn.core.settings.max_workers {
        return Err(Refusal::Full { workers });
    }
    turn.record(Record::WorkerJoined { worker, name: hello.name.clone() });
    turn.core.roster.join(worker, hello, turn.now);
    let settings = &turn.core.settings;
    let milliseconds = |time: Duration| u32::try_from(time.as_millis()).unwrap_or(u32::MAX);
    let welcome = Welcome {
        worker: worker.0,
        token,
        run: settings.run.clone(),
        heartbeat_ms: milliseconds(settings.heartbeat),
        lease_ms: milliseconds(settings.lease),
    };
    turn.send(worker, welcome);
    turn.send(worker, Benchmark {});
    Ok(())
}
