//! What sessions cost that only stay.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use protocol::{
    SUBPROTOCOL,
    message::{Down, Header, ToWorker},
};
use serde_json::{Value, json};
use tests::{
    Coordinator,
    resources::{memory, processor_seconds},
};
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;

use crate::{numbers::rounded, peer::Peer};

const WANTED: usize = 10_000;
/// The most that a run.toml may ask for where it may not ask for that many.
const ALLOWED: usize = 1000;
/// Asked for beyond what the run lets in.
const BEYOND: usize = 20;
/// Open files of either side: the connections, and what a program has open anyway.
pub const FILES: u64 = (WANTED + BEYOND + 200) as u64;
/// Connections being made at a time.
const AT_A_TIME: usize = 64;
/// Time to come to rest, and then to look how much is done at rest.
const REST: Duration = Duration::from_secs(5);
const LIMIT: Duration = Duration::from_mins(1);

pub async fn measure() -> Result<Value> {
    // A program that does not take such a run says so and ends.
    let (coordinator, allowed) = match start(WANTED).await {
        Ok(coordinator) => (coordinator, WANTED),
        Err(_) => (start(ALLOWED).await?, ALLOWED),
    };
    let pid = coordinator.process.id();
    let url = coordinator.url.as_str();
    sleep(Duration::from_secs(1)).await;
    let before = memory(pid)?;

    let open = |count| stream::iter(0..count).map(|_| session(url)).buffer_unordered(AT_A_TIME);
    let sessions: Vec<Peer> = open(allowed)
        .map(|session| session?.context("refused although the run has room"))
        .try_collect()
        .await?;
    // They answer pings, like everybody.
    let mut idle = JoinSet::new();
    for mut session in sessions {
        idle.spawn(async move { while session.stream.hear().await.is_ok() {} });
    }
    sleep(REST).await;
    let (with, computed) = (memory(pid)?, processor_seconds(pid)?);
    sleep(REST).await;
    let computed = processor_seconds(pid)? - computed;
    ensure!(idle.try_join_next().is_none(), "an idle session was closed");

    let admitted: Vec<Option<Peer>> = open(BEYOND).try_collect().await?;
    let refused = admitted.iter().filter(|session| session.is_none()).count();
    Ok(json!({
        "what": "idle_sessions",
        "sessions": allowed,
        "sessions_wanted": WANTED,
        "tried_beyond": BEYOND,
        "refused_and_closed": refused,
        "resident_bytes_before": before.now,
        "resident_bytes_with": with.now,
        "resident_bytes_per_session": with.now.saturating_sub(before.now) / allowed as u64,
        "processor_share_at_rest": rounded(computed / REST.as_secs_f64()),
    }))
}

async fn start(workers: usize) -> Result<Coordinator> {
    let run =
        format!("session = {{ heartbeat_seconds = 1800, lease_seconds = 3600, max_workers = {workers} }}\n");
    Coordinator::start(&run, &[]).await
}

/// A session that said Hello and was let in; None when it was refused, and closed.
async fn session(url: &str) -> Result<Option<Peer>> {
    let joining = async {
        // What this side sets aside for reading is not measured, and must not take up the machine.
        let config = WebSocketConfig::default().read_buffer_size(4 << 10);
        let mut peer = Peer::connect_with(url, Some(SUBPROTOCOL), config).await?;
        peer.hello().await?;
        let heard = peer.stream.hear().await;
        anyhow::Ok((peer, heard))
    };
    let (peer, heard) = timeout(LIMIT, joining).await.context("a session is not answered")??;
    match heard {
        Ok(ToWorker::Down(Down::Welcome(_))) => Ok(Some(peer)),
        Ok(other) => bail!("{} instead of Welcome", other.name()),
        Err(_) => Ok(None),
    }
}
