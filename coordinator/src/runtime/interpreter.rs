//! Takes events from the queue, and does what the run says.

use std::{
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use axum::body::Bytes;
use control::{Action, Event, Mode, Run};
use protocol::{
    frame,
    message::{Apply, Down, ToWorker},
    view::{CurvePoint, Phase},
    worker_id::WorkerId,
};
use tokio::{
    sync::{broadcast, mpsc, watch},
    time::{interval, sleep_until},
};

use crate::{
    server::Shared,
    storage::{checkpoint, data_dir::DataDir, event_log::EventLog},
};

/// How often leases are looked at.
const TICK: Duration = Duration::from_secs(1);
/// A tick that comes so much later than it should shows that the computer or the program stood still.
const STALLED: Duration = Duration::from_secs(5);
/// How often the pages hear of changes, at most ...
const VIEW: Duration = Duration::from_millis(250);
/// ... and this many times as long as it takes to write them down: with thousands of workers that is work.
const VIEW_COST: u32 = 50;

/// The IO of one mode.
pub(crate) trait ModeIo {
    /// The mode.
    type Mode: Mode;

    /// Does what the mode asks for. An error is of this action alone: the run goes on.
    fn act(&mut self, action: <Self::Mode as Mode>::Action, run: &Run<Self::Mode>) -> anyhow::Result<()>;
}

/// Where the pages' news go.
pub(crate) struct Pages {
    pub(crate) view: watch::Sender<Bytes>,
    pub(crate) curve: watch::Sender<Arc<Vec<CurvePoint>>>,
    pub(crate) points: broadcast::Sender<String>,
}

/// A run with everything that its actions may need.
pub(crate) struct Interpreter<I: ModeIo> {
    pub(crate) run: Run<I::Mode>,
    pub(crate) io: I,
    pub(crate) shared: Arc<Shared>,
    /// From sessions and the organizer.
    pub(crate) events: mpsc::Receiver<Event>,
    /// From the mode's own IO.
    pub(crate) told: mpsc::UnboundedReceiver<<I::Mode as Mode>::Event>,
    pub(crate) log: EventLog,
    pub(crate) data_dir: DataDir,
    pub(crate) pages: Pages,
}

/// How a run came to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ending {
    /// Finished or stopped.
    pub phase: Phase,
    /// The newest checkpoint.
    pub checkpoint: Option<PathBuf>,
}

impl<I: ModeIo> Interpreter<I> {
    /// Runs until the process is told to end. `over` hears once when the run has ended.
    pub(crate) async fn run(mut self, over: tokio::sync::oneshot::Sender<Ending>) -> anyhow::Result<()> {
        let began = Instant::now();
        let mut over = Some(over);
        let mut dirty = true;
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut last_tick = Instant::now();
        let mut next_view = tokio::time::Instant::now();
        self.look_for_the_end(&mut over, began.elapsed())?;
        loop {
            let wake = self.run.wake_at(began.elapsed()).map(|at| tokio::time::Instant::from_std(began + at));
            let actions = tokio::select! {
                event = self.events.recv() => match event {
                    Some(event) => self.run.handle(began.elapsed(), event),
                    None => return Ok(()),
                },
                Some(event) = self.told.recv() => self.run.told(began.elapsed(), event),
                _ = ticks.tick() => {
                    let late = last_tick.elapsed().saturating_sub(TICK);
                    last_tick = Instant::now();
                    if late > STALLED {
                        tracing::warn!("the coordinator stood still for {late:.0?}; nobody's silence counts");
                        let actions = self.run.handle(began.elapsed(), Event::Stalled(late));
                        self.act(actions);
                    }
                    self.run.handle(began.elapsed(), Event::Tick)
                }
                () = sleep_until(wake.unwrap_or(next_view)), if wake.is_some() => {
                    self.run.handle(began.elapsed(), Event::Tick)
                }
                () = sleep_until(next_view), if dirty => {
                    dirty = false;
                    let start = tokio::time::Instant::now();
                    self.publish_view(began.elapsed())?;
                    next_view = start + VIEW.max(start.elapsed() * VIEW_COST);
                    continue;
                }
            };
            dirty = true;
            self.act(actions);
            self.look_for_the_end(&mut over, began.elapsed())?;
        }
    }

    fn look_for_the_end(
        &self,
        over: &mut Option<tokio::sync::oneshot::Sender<Ending>>,
        now: Duration,
    ) -> anyhow::Result<()> {
        let phase = self.run.phase();
        if matches!(phase, Phase::Finished | Phase::Stopped)
            && let Some(over) = over.take()
        {
            self.publish_view(now)?;
            let checkpoint = checkpoint::list(&self.data_dir.checkpoints())?.pop();
            let _ = over.send(Ending { phase, checkpoint });
        }
        Ok(())
    }

    fn publish_view(&self, now: Duration) -> anyhow::Result<()> {
        self.pages.view.send_replace(serde_json::to_vec(&self.run.view(now))?.into());
        Ok(())
    }

    /// Does what the run says. What fails concerns one action: the run goes on.
    fn act(&mut self, actions: Vec<Action<<I::Mode as Mode>::Action>>) {
        for action in actions {
            let done = match action {
                Action::Send { worker, message } => self.send(worker, message),
                Action::Close { worker, refusal } => {
                    tracing::warn!(%worker, "turned away: {refusal}");
                    self.shared.hub.close(worker, refusal);
                    Ok(())
                }
                Action::Record(record) => {
                    tracing::debug!(?record, "recorded");
                    self.log.append(record);
                    Ok(())
                }
                Action::Point(point) => self.point(&point),
                Action::Mode(action) => self.io.act(action, &self.run),
            };
            if let Err(error) = done {
                tracing::error!("an action of the run failed: {error:#}");
            }
        }
    }

    fn point(&self, point: &CurvePoint) -> anyhow::Result<()> {
        let _ = self.pages.points.send(serde_json::to_string(&[point])?);
        self.pages.curve.send_replace(Arc::new(self.run.curve().to_vec()));
        Ok(())
    }

    fn send(&self, worker: WorkerId, message: Down) -> anyhow::Result<()> {
        if matches!(message, Down::Assign(_) | Down::Apply(Apply { snapshot: true, .. })) {
            self.shared.grant_upload(worker);
        }
        send(&self.shared, worker, message, &[])
    }
}

/// Queues a message with its payload for a worker.
pub(super) fn send(
    shared: &Shared,
    worker: WorkerId,
    message: impl Into<Down>,
    payload: &[u8],
) -> anyhow::Result<()> {
    let bytes: Bytes = frame::encode(&ToWorker::Down(message.into()), payload)?.into();
    shared.hub.send(worker, bytes);
    Ok(())
}
