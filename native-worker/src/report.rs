//! What happens in a session, as log lines.

use protocol::{spec::Hop, tab::SessionEvent};

pub fn report(event: SessionEvent) {
    match event {
        SessionEvent::Welcomed { worker, run } => {
            tracing::info!("welcomed as worker {worker} of run {}", run.name)
        }
        SessionEvent::Profiled { profile } => tracing::info!(
            "{:?} ({}): {:.2} ms a layer",
            profile.backend,
            profile.device,
            profile.layer_seconds * 1e3
        ),
        SessionEvent::Loading { epoch, hops } => tracing::info!("plan {epoch}: loading {}", parts(&hops)),
        SessionEvent::Training { epoch, hops } => tracing::info!("plan {epoch}: training {}", parts(&hops)),
        SessionEvent::Step { step, loss, .. } => match loss {
            Some(loss) => tracing::info!("step {step}, loss {loss:.4}"),
            None => tracing::info!("step {step}"),
        },
        SessionEvent::Reconnecting { in_seconds, reason } => {
            tracing::warn!("{reason}; trying again in {in_seconds} s");
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
