//! Who comes and goes: workers that train, and whoever [`crate::strangers`] has. One after the other, in a fixed order.

use std::{
    collections::VecDeque,
    process::Stdio,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use tests::{Client, Coordinator, cohort};
use tokio::{
    process::{Child, Command},
    task::JoinHandle,
};

use crate::strangers;

/// Workers that always stay, so that the run goes on, and the most that there are.
const WORKERS: std::ops::RangeInclusive<usize> = 2..=4;
/// Readers of the event stream at a time.
const WATCHERS: usize = 6;
/// A stranger that has not come to its end by then is cut off.
const PATIENCE: Duration = Duration::from_secs(30);

/// What happens at a tick.
#[derive(Debug, Clone, Copy)]
enum Disturbance {
    WorkerComes,
    /// `kill -9`.
    WorkerKilled,
    /// Ctrl-C: it says that it leaves.
    WorkerLeaves,
    WatcherComes,
    WatcherLeaves,
    /// A session that says what is no frame.
    Nonsense,
    /// A session that joins, measures itself, and is gone.
    Visitor,
    /// The same, in the middle of an upload.
    AbandonedPiece,
    /// A request whose body ends too early.
    AbandonedRequest,
    /// A connection that says nothing, and closes.
    Silent,
}

const ORDER: [Disturbance; 14] = [
    Disturbance::WatcherComes,
    Disturbance::WorkerComes,
    Disturbance::Nonsense,
    Disturbance::AbandonedPiece,
    Disturbance::WatcherComes,
    Disturbance::Silent,
    Disturbance::WorkerKilled,
    Disturbance::AbandonedRequest,
    Disturbance::WatcherLeaves,
    Disturbance::WorkerComes,
    Disturbance::Visitor,
    Disturbance::WatcherLeaves,
    Disturbance::WorkerLeaves,
    Disturbance::AbandonedPiece,
];

/// Everybody that is there; gone when dropped.
pub(crate) struct Churn {
    url: String,
    count: usize,
    workers: VecDeque<Child>,
    watchers: VecDeque<JoinHandle<()>>,
    strangers: VecDeque<(Instant, JoinHandle<Result<()>>)>,
}

impl Churn {
    /// With the workers that the run needs.
    ///
    /// # Errors
    /// When there is no program.
    pub(crate) fn new(coordinator: &Coordinator) -> Result<Self> {
        let mut churn = Self {
            url: coordinator.url.clone(),
            count: 0,
            workers: VecDeque::new(),
            watchers: VecDeque::new(),
            strangers: VecDeque::new(),
        };
        (0..*WORKERS.start()).try_for_each(|_| churn.worker_comes())?;
        Ok(churn)
    }

    /// How often something has happened.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// The next disturbance.
    ///
    /// # Errors
    /// When a stranger met something that should not be.
    pub(crate) async fn next(&mut self) -> Result<()> {
        let url = self.url.clone();
        match ORDER[self.count % ORDER.len()] {
            Disturbance::WorkerComes => self.worker_comes()?,
            Disturbance::WorkerKilled => self.worker_goes(false).await?,
            Disturbance::WorkerLeaves => self.worker_goes(true).await?,
            Disturbance::WatcherComes if self.watchers.len() < WATCHERS => {
                self.watchers.push_back(tokio::spawn(async move { drop(strangers::watch(&url).await) }));
            }
            Disturbance::WatcherComes => {}
            Disturbance::WatcherLeaves => {
                self.watchers.pop_front().iter().for_each(JoinHandle::abort);
            }
            Disturbance::Nonsense => self.stranger(strangers::nonsense(url)),
            Disturbance::Visitor => self.stranger(strangers::visit(url)),
            Disturbance::AbandonedPiece => self.stranger(strangers::abandon_piece(url, self.count)),
            Disturbance::AbandonedRequest => self.stranger(strangers::abandon_request(url)),
            Disturbance::Silent => self.stranger(async move { Client::connect(&url).await.map(drop) }),
        }
        self.count += 1;
        while self
            .strangers
            .front()
            .is_some_and(|(since, task)| task.is_finished() || since.elapsed() > PATIENCE)
        {
            let Some((_, task)) = self.strangers.pop_front() else { break };
            if task.is_finished() {
                task.await?.context("a stranger met what it should not")?;
            } else {
                task.abort();
            }
        }
        Ok(())
    }

    fn stranger(&mut self, does: impl Future<Output = Result<()>> + Send + 'static) {
        self.strangers.push_back((Instant::now(), tokio::spawn(does)));
    }

    /// Those that said that they leave may have ended.
    fn worker_comes(&mut self) -> Result<()> {
        self.workers.retain_mut(|worker| matches!(worker.try_wait(), Ok(None)));
        if self.workers.len() >= *WORKERS.end() {
            return Ok(());
        }
        let name = format!("worker-{}", self.count);
        let worker = Command::new(cohort::binary()?)
            .args(["work", &self.url, "--backend", "cpu", "--name", &name])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .context("cannot start a worker")?;
        self.workers.push_back(worker);
        Ok(())
    }

    /// The oldest goes: it holds a part.
    async fn worker_goes(&mut self, in_order: bool) -> Result<()> {
        self.workers.retain_mut(|worker| matches!(worker.try_wait(), Ok(None)));
        if self.workers.len() <= *WORKERS.start() {
            return Ok(());
        }
        let Some(mut worker) = self.workers.pop_front() else { return Ok(()) };
        match worker.id().filter(|_| in_order) {
            // It is still there for a while, and may be the last one to be asked.
            Some(id) => {
                xtask::process::interrupt(id);
                self.workers.push_back(worker);
            }
            None => worker.kill().await?,
        }
        Ok(())
    }
}

impl Drop for Churn {
    fn drop(&mut self) {
        self.watchers.iter().for_each(JoinHandle::abort);
        self.strangers.iter().for_each(|(_, task)| task.abort());
    }
}
