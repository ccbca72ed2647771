//! What happens in a session, as log lines.

use protocol::{message::DeviceStatus, spec::Hop, tab::SessionEvent};
use worker::platform;

/// Writes what happens to the log.
pub(crate) struct Reporter;

impl platform::Reporter for Reporter {
    fn tell(&self, event: SessionEvent) {
        report(event);
    }

    /// This process's memory; operating systems do not tell pressure.
    fn status(&self) -> DeviceStatus {
        let memory_bytes = memory_stats::memory_stats().map_or(0, |memory| memory.physical_mem as u64);
        DeviceStatus { memory_bytes, pressure: None }
    }
}

fn report(event: SessionEvent) {
    match event {
        SessionEvent::Welcomed { worker, run } => {
            tracing::info!("welcomed as worker {worker} of run {}", run.name);
        }
        SessionEvent::Profiled { profile } => {
            let link = profile.link.map_or("not measured".into(), |link| {
                format!(
                    "{:.1} ms there and back, {:.1} Mbit/s up, {:.1} down",
                    link.round_trip_seconds * 1e3,
                    link.up * 8e-6,
                    link.down * 8e-6
                )
            });
            tracing::info!(
                "{:?} ({}): a layer takes {:.2} ms forward and {:.2} ms backward; link: {link}",
                profile.backend,
                profile.device,
                profile.layer.forward * 1e3,
                profile.layer.backward * 1e3
            );
        }
        SessionEvent::Loading { epoch, hops } => tracing::info!("plan {epoch}: loading {}", parts(&hops)),
        SessionEvent::Serving { epoch, hops } => tracing::info!("plan {epoch}: serving {}", parts(&hops)),
        SessionEvent::Training { epoch, hops } => tracing::info!("plan {epoch}: training {}", parts(&hops)),
        SessionEvent::Step { step, loss, .. } => match loss {
            Some(loss) => tracing::info!("step {step}, loss {loss:.4}"),
            None => tracing::info!("step {step}"),
        },
        // One line a round is enough.
        SessionEvent::BlockLoading { .. } => {}
        SessionEvent::LocalStep { round, block, step, steps, cross_entropy } if step == steps => {
            tracing::info!("round {}, block {block}: local cross-entropy {cross_entropy:.4}", round + 1);
        }
        SessionEvent::LocalStep { .. } => {}
        SessionEvent::DeltaSent { round, timings, .. } => tracing::info!(
            "round {}: sent; {:.2} s computing, {:.2} s fetching, {:.2} s sending",
            round + 1,
            timings.busy(),
            timings.receive,
            timings.send
        ),
        SessionEvent::DeltaOutcome { round, refused: None } => {
            tracing::info!("round {}: accepted", round + 1);
        }
        SessionEvent::DeltaOutcome { round, refused: Some(words) } => {
            tracing::warn!("round {}: not taken: {words}", round + 1);
        }
        SessionEvent::Evaluating { round } => tracing::info!("measuring the weights after round {round}"),
        SessionEvent::Reconnecting { in_seconds, reason } => {
            tracing::warn!("{reason}; trying again in {in_seconds:.1} s");
        }
        other => tracing::info!("{other:?}"),
    }
}

fn parts(hops: &[Hop]) -> String {
    let mut words = Vec::new();
    for hop in hops {
        if hop.part.embedding {
            words.push("embedding".to_string());
        }
        if hop.part.end_layer > hop.part.first_layer {
            words.push(format!("layers {} to {}", hop.part.first_layer + 1, hop.part.end_layer));
        }
        if hop.part.head {
            words.push("head".to_string());
        }
    }
    words.join(", ")
}
