//! What the encoding of activations and gradients costs in loss and saves in bytes, on a real run.

use anyhow::{Context, Result, ensure};
use tests::{Coordinator, alone, runs::TinyRun};

const STEPS: u64 = 80;
/// How much worse the loss on held-out text may be than with f32, in nats, and how many times fewer bytes must travel.
/// f16 rounds at 2^-11 of a value, int8 at 1/254 of the largest in 64.
const ENCODINGS: [(&str, f64, f64); 2] = [("f16", 0.005, 1.9), ("int8", 0.05, 3.5)];

/// Loss on held-out text after the last step, and bytes relayed.
async fn train(wire: &'static str) -> Result<(f64, f64)> {
    let run = TinyRun { workers: 3, steps: STEPS, validate_every: STEPS, wire, ..TinyRun::default() };
    let coordinator = Coordinator::start(&run.toml(), &[]).await?;
    coordinator.start_workers(3)?;
    let curve = coordinator.wait_for_finish().await?;
    let loss = curve.last().and_then(|point| point.validation_loss).context("nothing was validated")?;
    let (status, metrics) = coordinator.api.text("/metrics").await?;
    ensure!(status == 200, "/metrics: status {status}");
    let bytes = metrics
        .lines()
        .find_map(|line| line.strip_prefix("cohort_relayed_bytes_total ")?.parse().ok())
        .with_context(|| format!("no cohort_relayed_bytes_total in\n{metrics}"))?;
    Ok((loss, bytes))
}

#[tokio::test]
async fn narrower_encodings_cost_little_and_save_much() -> Result<()> {
    let _alone = alone().await;
    let (exact, all) = train("f32").await?;
    println!("f32: loss {exact:.4}, {:.2} MB", all / 1e6);
    for (wire, worse, fewer) in ENCODINGS {
        let (loss, bytes) = train(wire).await?;
        println!(
            "{wire}: loss {loss:.4} ({:+.4}), {:.2} MB (a factor of {:.2})",
            loss - exact,
            bytes / 1e6,
            all / bytes
        );
        ensure!(loss - exact <= worse, "{wire} costs {} nats", loss - exact);
        ensure!(all / bytes >= fewer, "{wire} saves a factor of {} only", all / bytes);
    }
    Ok(())
}
