//! What two honest peers notice of somebody else's flood: rounds with and without each attack, in turn.

use std::{
    env,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use protocol::blob::BlobHash;
use serde_json::{Value, json};
use tests::{
    Coordinator,
    process::Process,
    resources::{memory, processor_seconds},
};
use tokio::time::sleep;

use crate::{
    attacker::{ATTACKER, ATTACKING, ATTACKS, DONE},
    frames::Shape,
    numbers::{median, quantile, rounded},
    route::Route,
    traffic::{Measured, at_pace, round},
};

/// Times that each attack begins and ends.
const CYCLES: usize = 12;
/// Rounds before each attack, and in it: few, so that what else the machine does changes little between them.
const ROUNDS: usize = 3;
/// Rounds before all, in which memory grows to what relaying takes.
const WARM_ROUNDS: usize = 9;
/// Of the bytes a second that go without an attack, those that are sent at a pace: a run whose computer has nothing to
/// spare loses to everything else that computes on it.
const PACE: f64 = 0.5;
/// Time for an attack to begin.
const START: Duration = Duration::from_mins(1);
/// Time for the coordinator to come to rest after an attack.
const REST: Duration = Duration::from_secs(2);
/// Of the blob that nobody reads.
const BLOB: usize = 1 << 20;

/// A row for each attack, or of one of them.
pub async fn measure(shape: &Shape, only: Option<&str>) -> Result<Vec<Value>> {
    let coordinator = Coordinator::start(&shape.toml(), &[]).await?;
    let blob = store(&coordinator).await?;
    let mut route = Route::through_coordinator(&coordinator, shape).await?;
    let mut warm = Measured::default();
    for _ in 0..WARM_ROUNDS {
        route = round(route, shape, &mut warm).await?;
    }
    let pace = PACE * median(&warm.bytes_per_second)?;
    let mut rows = Vec::new();
    for (attack, what) in ATTACKS.into_iter().filter(|(attack, _)| only.is_none_or(|only| only == *attack)) {
        let row;
        (route, row) = one(route, shape, &coordinator, attack, what, blob, pace).await?;
        rows.push(row);
    }
    Ok(rows)
}

async fn one(
    mut route: Route,
    shape: &Shape,
    coordinator: &Coordinator,
    attack: &str,
    what: &str,
    blob: BlobHash,
    pace: f64,
) -> Result<(Route, Value)> {
    let pid = route.pid;
    let before = memory(pid)?.now;
    let (mut quiet, mut flooded) = (Measured::default(), Measured::default());
    let (mut quiet_paced, mut flooded_paced) = (Measured::default(), Measured::default());
    let (mut most, mut ratios) = (0, Vec::new());
    let (mut attacker_computed, mut attacked, mut acts) = (0.0, 0.0, 0.0);
    for _ in 0..CYCLES {
        let mut without = Measured::default();
        for _ in 0..ROUNDS {
            route = round(route, shape, &mut without).await?;
            route = at_pace(route, pace, &mut quiet_paced).await?;
        }
        let attacker = start(coordinator, attack, blob).await?;
        let (began, computed, acts_before) =
            (Instant::now(), processor_seconds(attacker.id())?, done(&attacker));
        let mut with = Measured::default();
        for _ in 0..ROUNDS {
            route = round(route, shape, &mut with).await?;
            route = at_pace(route, pace, &mut flooded_paced).await?;
            most = most.max(memory(pid)?.now);
        }
        attacker_computed += processor_seconds(attacker.id())? - computed;
        attacked += began.elapsed().as_secs_f64();
        acts += done(&attacker) - acts_before;
        drop(attacker);
        sleep(REST).await;
        ratios.push(median(&with.bytes_per_second)? / median(&without.bytes_per_second)?);
        quiet.add(without);
        flooded.add(with);
    }
    // The clock of processor time is coarse beside a round: of all rounds together.
    let mean = |measured: &Measured| {
        measured.processor_seconds.iter().sum::<f64>() / measured.processor_seconds.len() as f64
    };
    // Where other programs disturb most rounds, those that they disturbed least tell more than the median.
    let best = |measured: &Measured| quantile(&measured.bytes_per_second, 0.9);
    let latency = |measured: &Measured, share| quantile(&measured.latencies, share).map(rounded);
    let row = json!({
        "what": "flood",
        "attack": attack,
        "is": what,
        "bytes_per_second": rounded(median(&flooded.bytes_per_second)?),
        "bytes_per_second_without": rounded(median(&quiet.bytes_per_second)?),
        "ratio": rounded(median(&ratios)?),
        "ratios": ratios.iter().copied().map(rounded).collect::<Vec<_>>(),
        "processor_ratio": rounded(mean(&flooded) / mean(&quiet)),
        "p50_seconds": latency(&flooded, 0.5)?,
        "p50_seconds_without": latency(&quiet, 0.5)?,
        "p99_seconds": latency(&flooded, 0.99)?,
        "p99_seconds_without": latency(&quiet, 0.99)?,
        "paced_bytes_per_second": rounded(pace),
        "paced_ratio": rounded(median(&flooded_paced.bytes_per_second)? / median(&quiet_paced.bytes_per_second)?),
        "paced_p50_seconds": latency(&flooded_paced, 0.5)?,
        "paced_p50_seconds_without": latency(&quiet_paced, 0.5)?,
        "best_ratio": rounded(best(&flooded)? / best(&quiet)?),
        "attacks_per_second": rounded(acts / attacked),
        "attacker_processors": rounded(attacker_computed / attacked),
        "resident_bytes_before": before,
        "resident_bytes_most": most,
        "resident_bytes_after": memory(pid)?.now,
    });
    Ok((route, row))
}

/// What an attacker has done so far.
fn done(attacker: &Process) -> f64 {
    let count = |line: &String| line.strip_prefix(DONE)?.parse().ok();
    attacker.lines().iter().rev().find_map(count).unwrap_or(0.0)
}

/// In earnest the attacker has a computer of its own; here it takes what it computes from everybody, which the row says.
async fn start(coordinator: &Coordinator, attack: &str, blob: BlobHash) -> Result<Process> {
    let own = env::current_exe()?;
    let mut process = Process::start(ATTACKER, &own, |command| {
        command.args([ATTACKER, attack, &coordinator.url, &blob.to_string()]);
    })?;
    let told = |line: &str| (line == ATTACKING).then_some(());
    process.wait_for_line("that it attacks", START, told).await?;
    Ok(process)
}

/// A blob to download.
async fn store(coordinator: &Coordinator) -> Result<BlobHash> {
    let token = coordinator.organizer.split_once("#token=").context("the organizer's link has no token")?.1;
    let bytes: Vec<u8> = (0..BLOB as u32).map(|n| (n >> 3) as u8).collect();
    let hash = BlobHash::of(&bytes);
    let put = reqwest::Client::new().put(format!("{}/v1/blobs/{hash}", coordinator.url));
    put.bearer_auth(token).body(bytes).send().await?.error_for_status()?;
    Ok(hash)
}
