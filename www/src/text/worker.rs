//! A device of the run in words.

use protocol::{
    message::{Pressure, WorkerKind},
    spec::Backend,
    view::{RunView, WorkerView},
};

use super::{
    Words, bounded,
    mode::ModeText,
    numbers::{NONE, about, bit_rate, bytes, seconds},
};
use crate::state::activity::{DEVICE_SILENT_AFTER, Status};

/// The name that its volunteer gave it, with its number where two have the same.
pub(crate) fn name(worker: &WorkerView, run: &RunView) -> String {
    let own = bounded(&worker.name);
    if run.workers.iter().any(|other| other.id != worker.id && other.name == worker.name) {
        format!("{own} (no. {})", worker.id)
    } else {
        own
    }
}

/// What it is doing: the words that its own page has for it.
pub(crate) fn status(status: Option<Status>, mode: &dyn ModeText) -> Words {
    match status {
        Some(status) => mode.status(status),
        None => super::say(super::Tone::Calm, "Gone", ""),
    }
}

/// For how long nothing was heard of it, where that is long.
pub(crate) fn silence(worker: &WorkerView) -> Option<String> {
    (worker.silent_seconds > DEVICE_SILENT_AFTER)
        .then(|| format!("silent for {}", about(worker.silent_seconds)))
}

/// The processor or graphics chip, as it names it.
pub(crate) fn device(worker: &WorkerView) -> String {
    bounded(&worker.device)
}

/// Where a device computes, in a sentence.
pub(crate) fn backend(backend: Backend) -> &'static str {
    match backend {
        Backend::Cpu => "the processor",
        Backend::WebGpu => "the graphics chip (WebGPU)",
    }
}

/// "Browser, WebGPU".
pub(crate) fn kind(worker: &WorkerView) -> String {
    let program = match worker.kind {
        WorkerKind::Browser => "Browser",
        WorkerKind::Native => "Program",
    };
    match worker.backend {
        Some(Backend::Cpu) => format!("{program}, CPU"),
        Some(Backend::WebGpu) if worker.kind == WorkerKind::Browser => format!("{program}, WebGPU"),
        Some(Backend::WebGpu) => format!("{program}, GPU"),
        None => program.to_owned(),
    }
}

/// "212 MB of 2.15 GB": what the program holds, and what its part may take.
pub(crate) fn memory(worker: &WorkerView) -> String {
    match (worker.status.memory_bytes, worker.memory_bytes) {
        (0, 0) => "unknown".to_owned(),
        (0, limit) => format!("at most {}", bytes(limit)),
        (used, 0) => bytes(used),
        (used, limit) => format!("{} of {}", bytes(used), bytes(limit)),
    }
}

/// "12 Mbit/s up, 50 Mbit/s down".
pub(crate) fn link(worker: &WorkerView) -> String {
    worker.link.map_or("not measured".to_owned(), |link| {
        format!("{} up, {} down", bit_rate(link.up), bit_rate(link.down))
    })
}

/// To the coordinator.
pub(crate) fn link_up(worker: &WorkerView) -> String {
    worker.link.map_or(NONE.to_owned(), |link| bit_rate(link.up))
}

/// From the coordinator.
pub(crate) fn link_down(worker: &WorkerView) -> String {
    worker.link.map_or(NONE.to_owned(), |link| bit_rate(link.down))
}

/// To the coordinator and back.
pub(crate) fn round_trip(worker: &WorkerView) -> String {
    worker.rtt_ms.map_or(NONE.to_owned(), |ms| seconds(ms / 1e3))
}

/// How hard the device says it is at work.
pub(crate) fn pressure(worker: &WorkerView) -> Option<&'static str> {
    Some(match worker.status.pressure? {
        Pressure::Nominal => "light",
        Pressure::Fair => "fair",
        Pressure::Serious => "high",
        Pressure::Critical => "very high, it may slow down",
    })
}

/// A note when steps take much longer than the device measured on joining.
pub(crate) fn pace(worker: &WorkerView) -> Option<String> {
    (worker.pace > 1.5).then(|| format!("Takes {:.1} times as long as it measured on joining.", worker.pace))
}

pub(crate) const TITLE: &str = "Devices";
pub(crate) const NAME: &str = "Name";
pub(crate) const RUNS_ON: &str = "Runs on";
pub(crate) const STATE: &str = "State";
pub(crate) const ACTION: &str = "Action";
pub(crate) const REMOVE: &str = "Remove";
pub(crate) const STEP: &str = "Step";
pub(crate) const COMPUTING: &str = "Computing";
pub(crate) const ROUND_TRIP: &str = "Round trip";
pub(crate) const MEMORY_IN_USE: &str = "Memory in use";
pub(crate) const LINK: &str = "Link";
pub(crate) const LOAD: &str = "Load";

#[cfg(test)]
mod tests {
    use protocol::{message::LinkSpeed, view::Phase};

    use super::*;
    use crate::state::fixtures::{pipeline, worker};

    #[test]
    fn two_of_one_name_are_told_apart() {
        let mut run = pipeline(Phase::Training);
        run.workers = vec![worker(4, "Chrome"), worker(7, "Chrome"), worker(8, "Ada")];
        let names: Vec<String> = run.workers.iter().map(|worker| name(worker, &run)).collect();
        assert_eq!(names, ["Chrome (no. 4)", "Chrome (no. 7)", "Ada"]);
    }

    #[test]
    fn a_fast_link_is_in_gigabits() {
        let mut fast = worker(1, "Ada");
        assert_eq!(link(&fast), "not measured");
        fast.link = Some(LinkSpeed { round_trip_seconds: 0.001, up: 343.5e6, down: 1.25e6 });
        assert_eq!(link(&fast), "2.7 Gbit/s up, 10 Mbit/s down");
    }

    #[test]
    fn silence_is_told_when_it_is_long() {
        let mut quiet = worker(1, "Ada");
        quiet.silent_seconds = 5.5;
        assert_eq!(silence(&quiet), None);
        quiet.silent_seconds = 12.0;
        assert_eq!(silence(&quiet).as_deref(), Some("silent for 12 s"));
    }
}
