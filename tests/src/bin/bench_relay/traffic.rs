//! Frames through the coordinator and through the forwarder, in turn.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tests::resources::processor_seconds;
use tokio::time::{sleep_until, timeout};

use crate::{
    frames::{Direction, Shape, Step},
    numbers::{median, quantile, rounded},
    peer::{Peer, Sink, Stream},
    route::Route,
};

/// Many short ones rather than few: other programs disturb some of them, and the median is of the others.
const ROUNDS: usize = 21;
/// Far more than a step takes anywhere.
const LIMIT: Duration = Duration::from_mins(1);

/// What one route did.
#[derive(Default)]
pub struct Measured {
    /// Of each round.
    pub bytes_per_second: Vec<f64>,
    /// Of the process between the peers, for each byte of a round.
    pub processor_seconds: Vec<f64>,
    /// Of all frames sent one at a time or at a pace.
    pub latencies: Vec<f64>,
}

impl Measured {
    /// What further rounds did.
    pub fn add(&mut self, more: Measured) {
        self.bytes_per_second.extend(more.bytes_per_second);
        self.processor_seconds.extend(more.processor_seconds);
        self.latencies.extend(more.latencies);
    }
}

pub async fn compare(mut ours: Route, mut bare: Route, shape: &Shape) -> Result<[Value; 2]> {
    // A round in which buffers and windows grow does not count.
    ours = round(ours, shape, &mut Measured::default()).await?;
    bare = round(bare, shape, &mut Measured::default()).await?;
    let (mut of_ours, mut of_bare) = (Measured::default(), Measured::default());
    for number in 0..ROUNDS {
        // Whoever goes first goes second the next time: a machine that slows down slows both.
        if number % 2 == 0 {
            ours = round(ours, shape, &mut of_ours).await?;
            bare = round(bare, shape, &mut of_bare).await?;
        } else {
            bare = round(bare, shape, &mut of_bare).await?;
            ours = round(ours, shape, &mut of_ours).await?;
        }
    }
    Ok([throughputs(shape, &of_ours, &of_bare)?, latencies(shape, &of_ours, &of_bare)?])
}

/// As fast as frames go, then one at a time.
pub async fn round(route: Route, shape: &Shape, measured: &mut Measured) -> Result<Route> {
    let mut route = at_full_speed(route, measured).await?;
    one_at_a_time(&mut route, shape.timed, measured).await?;
    Ok(route)
}

/// All frames of a step in both directions, as fast as they go.
///
/// Each end of each direction is a task of its own, so that the peers are not slower than what lies between.
async fn at_full_speed(mut route: Route, measured: &mut Measured) -> Result<Route> {
    let step = route.next_step().await?;
    let Route { first, second, .. } = route;
    let computed = processor_seconds(route.pid)?;
    let started = Instant::now();
    let tasks = (
        tokio::spawn(send(first.sink, step.clone(), Direction::Forward)),
        tokio::spawn(receive(second.stream, step.clone(), Direction::Forward)),
        tokio::spawn(send(second.sink, step.clone(), Direction::Back)),
        tokio::spawn(receive(first.stream, step.clone(), Direction::Back)),
    );
    let all = async { tokio::try_join!(tasks.0, tasks.1, tasks.2, tasks.3) };
    let (to_second, at_second, to_first, at_first) =
        timeout(LIMIT, all).await.context("the frames do not arrive")??;
    let seconds = started.elapsed().as_secs_f64();
    let computed = processor_seconds(route.pid)? - computed;
    let bytes = 2.0 * f64::from(step.micro_batches) * step.payload.len() as f64;
    measured.bytes_per_second.push(bytes / seconds);
    measured.processor_seconds.push(computed / bytes);
    let first = Peer { sink: to_second?, stream: at_first? };
    let second = Peer { sink: to_first?, stream: at_second? };
    Ok(Route { first, second, ..route })
}

async fn send(mut sink: Sink, step: Step, direction: Direction) -> Result<Sink> {
    for micro_batch in 0..step.micro_batches {
        sink.send(step.frame(micro_batch, direction)?).await?;
    }
    Ok(sink)
}

async fn receive(mut stream: Stream, step: Step, direction: Direction) -> Result<Stream> {
    for micro_batch in 0..step.micro_batches {
        expect(&mut stream, &step, micro_batch, direction).await?;
    }
    Ok(stream)
}

async fn expect(stream: &mut Stream, step: &Step, micro_batch: u32, direction: Direction) -> Result<()> {
    let message = stream.hear().await?;
    ensure!(step.is(&message, micro_batch, direction), "another frame than was sent: {message:?}");
    Ok(())
}

/// All frames of a step in both directions, begun at so many bytes a second in all. The way of each is timed from when it
/// was due: who sends late counts too.
pub async fn at_pace(mut route: Route, bytes_per_second: f64, measured: &mut Measured) -> Result<Route> {
    let step = route.next_step().await?;
    let Route { first, second, .. } = route;
    let computed = processor_seconds(route.pid)?;
    let bytes = 2.0 * f64::from(step.micro_batches) * step.payload.len() as f64;
    let pace = Pace {
        began: Instant::now(),
        between: Duration::from_secs_f64(2.0 * step.payload.len() as f64 / bytes_per_second),
    };
    let tasks = (
        tokio::spawn(send_at(first.sink, step.clone(), Direction::Forward, pace)),
        tokio::spawn(time_arrivals(second.stream, step.clone(), Direction::Forward, pace)),
        tokio::spawn(send_at(second.sink, step.clone(), Direction::Back, pace)),
        tokio::spawn(time_arrivals(first.stream, step.clone(), Direction::Back, pace)),
    );
    let all = async { tokio::try_join!(tasks.0, tasks.1, tasks.2, tasks.3) };
    let (to_second, at_second, to_first, at_first) =
        timeout(LIMIT, all).await.context("the frames do not arrive")??;
    measured.bytes_per_second.push(bytes / pace.began.elapsed().as_secs_f64());
    measured.processor_seconds.push((processor_seconds(route.pid)? - computed) / bytes);
    let ((at_second, there), (at_first, back)) = (at_second?, at_first?);
    measured.latencies.extend(there.into_iter().chain(back));
    let first = Peer { sink: to_second?, stream: at_first };
    let second = Peer { sink: to_first?, stream: at_second };
    Ok(Route { first, second, ..route })
}

/// When frames are due.
#[derive(Clone, Copy)]
struct Pace {
    began: Instant,
    between: Duration,
}

impl Pace {
    fn due(self, frame: u32) -> Instant {
        self.began + self.between * frame
    }
}

async fn send_at(mut sink: Sink, step: Step, direction: Direction, pace: Pace) -> Result<Sink> {
    for micro_batch in 0..step.micro_batches {
        // Timers count whole milliseconds: what is due within one is sent together.
        if pace.due(micro_batch) > Instant::now() {
            sleep_until(pace.due(micro_batch).into()).await;
        }
        sink.send(step.frame(micro_batch, direction)?).await?;
    }
    Ok(sink)
}

async fn time_arrivals(
    mut stream: Stream,
    step: Step,
    direction: Direction,
    pace: Pace,
) -> Result<(Stream, Vec<f64>)> {
    let mut latencies = Vec::new();
    for micro_batch in 0..step.micro_batches {
        expect(&mut stream, &step, micro_batch, direction).await?;
        latencies.push(pace.due(micro_batch).elapsed().as_secs_f64());
    }
    Ok((stream, latencies))
}

/// Frames there and back, each sent when the one before has arrived.
async fn one_at_a_time(route: &mut Route, frames: u32, measured: &mut Measured) -> Result<()> {
    let step = route.next_step().await?;
    let Route { first, second, .. } = route;
    for micro_batch in 0..frames.min(step.micro_batches) {
        for (from, to, direction) in [
            (&mut first.sink, &mut second.stream, Direction::Forward),
            (&mut second.sink, &mut first.stream, Direction::Back),
        ] {
            let frame = step.frame(micro_batch, direction)?;
            let sent = Instant::now();
            from.send(frame).await?;
            expect(to, &step, micro_batch, direction).await?;
            measured.latencies.push(sent.elapsed().as_secs_f64());
        }
    }
    Ok(())
}

fn throughputs(shape: &Shape, ours: &Measured, bare: &Measured) -> Result<Value> {
    // Of neighbours in time, as what else the machine does slows both.
    let ratios: Vec<f64> =
        ours.bytes_per_second.iter().zip(&bare.bytes_per_second).map(|(ours, bare)| ours / bare).collect();
    let nanoseconds = |measured: &Measured| median(&measured.processor_seconds).map(|s| rounded(1e9 * s));
    let list = |values: &[f64]| values.iter().copied().map(rounded).collect::<Vec<_>>();
    Ok(json!({
        "what": "throughput",
        "frames": shape.name,
        "bytes_per_second": rounded(median(&ours.bytes_per_second)?),
        "forwarder_bytes_per_second": rounded(median(&bare.bytes_per_second)?),
        "ratio": rounded(median(&ratios)?),
        "processor_nanoseconds_per_byte": nanoseconds(ours)?,
        "forwarder_processor_nanoseconds_per_byte": nanoseconds(bare)?,
        "rounds": list(&ours.bytes_per_second),
        "forwarder_rounds": list(&bare.bytes_per_second),
    }))
}

fn latencies(shape: &Shape, ours: &Measured, bare: &Measured) -> Result<Value> {
    let at = |measured: &Measured, share| quantile(&measured.latencies, share);
    let (p50, p99) = (at(ours, 0.5)?, at(ours, 0.99)?);
    let (bare_p50, bare_p99) = (at(bare, 0.5)?, at(bare, 0.99)?);
    Ok(json!({
        "what": "latency",
        "frames": shape.name,
        "p50_seconds": rounded(p50),
        "p99_seconds": rounded(p99),
        "forwarder_p50_seconds": rounded(bare_p50),
        "forwarder_p99_seconds": rounded(bare_p99),
        "added_p50_seconds": rounded(p50 - bare_p50),
        "added_p99_seconds": rounded(p99 - bare_p99),
        "count": ours.latencies.len(),
    }))
}
