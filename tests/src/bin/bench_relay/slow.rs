//! The coordinator's memory while a peer does not read.

use std::{
    pin::pin,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant},
};

use anyhow::Result;
use serde_json::{Value, json};
use tests::resources::memory;
use tokio::time::{interval, sleep};

use crate::{
    frames::{Direction, Shape, Step},
    peer::{Sink, Stream},
    route::Route,
};

/// How long nothing is read.
const SLOW: Duration = Duration::from_secs(5);
/// A sender that gets rid of nothing for this long has been stopped.
const STOPPED: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(20);

/// What was seen while nothing was read.
struct Seen {
    most: u64,
    stopped: bool,
}

pub async fn measure(route: &mut Route, shape: &Shape) -> Result<Value> {
    let step = route.next_step().await?;
    let before = memory(route.pid)?;
    let sent = AtomicU64::new(0);
    let mut sending = pin!(send(&mut route.first.sink, &step, &sent));
    let mut watching = pin!(watch(route.pid, &sent));
    // Whether everything was taken from the sender although nobody read.
    let (seen, all_taken) = tokio::select! {
        seen = &mut watching => (seen?, false),
        result = &mut sending => {
            result?;
            (watching.await?, true)
        }
    };
    let accepted = sent.load(Relaxed);
    // Reading again lets everything through.
    let reading = receive(&mut route.second.stream, &step);
    if all_taken {
        reading.await?;
    } else {
        tokio::try_join!(sending, reading)?;
    }
    sleep(STOPPED).await;
    let after = memory(route.pid)?;
    Ok(json!({
        "what": "slow_receiver",
        "frames": shape.name,
        "offered_bytes": u64::from(step.micro_batches) * step.payload.len() as u64,
        "accepted_bytes": accepted,
        "sender_stopped": seen.stopped && !all_taken,
        "resident_bytes_before": before.now,
        "resident_bytes_most": seen.most,
        "resident_bytes_after": after.now,
        "peak_bytes_before": before.most,
        "peak_bytes_after": after.most,
    }))
}

async fn send(sink: &mut Sink, step: &Step, sent: &AtomicU64) -> Result<()> {
    for micro_batch in 0..step.micro_batches {
        sink.send(step.frame(micro_batch, Direction::Forward)?).await?;
        sent.fetch_add(step.payload.len() as u64, Relaxed);
    }
    Ok(())
}

async fn receive(stream: &mut Stream, step: &Step) -> Result<()> {
    for _ in 0..step.micro_batches {
        stream.hear().await?;
    }
    Ok(())
}

async fn watch(pid: u32, sent: &AtomicU64) -> Result<Seen> {
    let (started, mut looks) = (Instant::now(), interval(LOOK));
    let (mut most, mut moved, mut last) = (0, started, 0);
    while started.elapsed() < SLOW {
        looks.tick().await;
        most = most.max(memory(pid)?.now);
        let now = sent.load(Relaxed);
        if now != last {
            (moved, last) = (Instant::now(), now);
        }
    }
    Ok(Seen { most, stopped: moved.elapsed() > STOPPED })
}
