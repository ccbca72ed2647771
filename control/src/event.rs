//! What a run takes in that is the same in both modes. Each mode has events of its own beside these.

use std::time::Duration;

use protocol::{
    message::{Hello, Up},
    refusal::Refusal,
    worker_id::WorkerId,
};

/// What the organizer may ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// Begin with the workers that are there, or go on after a pause.
    Start,
    /// Hold at the end of the current step or round.
    Pause,
    /// End the run at the end of the current step or round, with a snapshot.
    Stop,
    /// Disconnect a worker.
    Remove(WorkerId),
}

/// Something has happened.
#[derive(Debug, Clone)]
pub enum Event {
    /// A worker said Hello in a version we speak.
    Joined {
        /// Its number.
        worker: WorkerId,
        /// What it said.
        hello: Hello,
        /// Its bearer token for blobs.
        token: String,
    },
    /// A message for the coordinator. Relayed messages go through [`crate::pipeline::Relay`] and are never seen here.
    Said {
        /// Who said it.
        worker: WorkerId,
        /// What was said.
        message: Up,
    },
    /// Bytes arrived from the worker; renews its lease.
    Heard {
        /// The worker.
        worker: WorkerId,
    },
    /// Round trip of a ping.
    PingMeasured {
        /// The worker.
        worker: WorkerId,
        /// There and back.
        round_trip: Duration,
    },
    /// Something that was sent was turned away, and nothing of it applied; the end of the connection follows.
    Refused {
        /// None when it had not been let in.
        worker: Option<WorkerId>,
        /// Why.
        refusal: Refusal,
    },
    /// The connection is closed.
    Gone {
        /// The worker.
        worker: WorkerId,
        /// For people.
        why: String,
    },
    /// The organizer asks for something.
    Asked(Command),
    /// The disk takes writes again, or it does not, in words.
    Storage(Result<(), String>),
    /// The coordinator itself stood still for so long (a suspended computer): silence in that time is nobody's fault.
    Stalled(Duration),
    /// Time passes.
    Tick,
}
