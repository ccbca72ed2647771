//! What a run gives out that is the same in both modes. Each mode has actions of its own beside these.

use protocol::{message::Down, refusal::Refusal, view::CurvePoint, worker_id::WorkerId};

use crate::record::Record;

/// Something to do, in order. `A` are the actions of the mode.
#[derive(Debug, Clone, PartialEq)]
pub enum Action<A> {
    /// Send a message without a payload.
    Send {
        /// To whom.
        worker: WorkerId,
        /// What.
        message: Down,
    },
    /// Say why and close the connection.
    Close {
        /// Whose.
        worker: WorkerId,
        /// Why.
        refusal: Refusal,
    },
    /// Append to the event log.
    Record(Record),
    /// A new point of the learning curve is there.
    Point(CurvePoint),
    /// An action of the mode.
    Mode(A),
}
