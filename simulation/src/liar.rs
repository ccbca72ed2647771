//! A worker that lies of its speed, its times and its scores, within what frames may hold.

use protocol::message::{DeviceStatus, PassSeconds, Pressure, Timings, Up};

use crate::chance::{even, log_normal};

/// Changes what a worker says of itself; the work itself stays as it is. `number` chooses the lie.
pub(crate) fn lie(message: &mut Up, number: u64) {
    let factor = |what: u64| log_normal(2.0, &[number, what]);
    let longer = |pass: &mut PassSeconds, what: u64| {
        pass.forward *= factor(what);
        pass.backward *= factor(what + 1);
    };
    let status = |status: &mut DeviceStatus| {
        *status = DeviceStatus { memory_bytes: number << 30, pressure: Some(Pressure::Critical) };
    };
    match message {
        Up::Profile(profile) => {
            longer(&mut profile.layer, 1);
            longer(&mut profile.embedding, 3);
            profile.head_seconds *= factor(5);
        }
        Up::StepReport(report) => {
            report.timings = nonsense(number);
            status(&mut report.status);
        }
        Up::DeltaReady(ready) => {
            ready.timings = nonsense(number);
            (ready.loss, ready.cross_entropy) = (-1e-3, (1e9 * even(&[number, 6])) as f32);
            status(&mut ready.status);
        }
        Up::EvaluationReport(report) => report.scores.one_draw *= factor(7),
        _ => {}
    }
}

fn nonsense(number: u64) -> Timings {
    let any = |what: u64| if even(&[number, what]) < 0.5 { 0.0 } else { 1e6 * even(&[number, what + 1]) };
    Timings {
        forward: any(10),
        backward: any(12),
        local_steps: any(14),
        wait: any(16),
        send: any(18),
        receive: any(20),
        optimizer: any(22),
    }
}
