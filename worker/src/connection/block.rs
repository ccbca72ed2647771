//! Block mode on a connection: rounds, deltas and evaluations.

use std::rc::Rc;

use futures::{FutureExt, future::Fuse};
use protocol::{
    blob::BlobRef,
    message::{DeltaReady, Evaluate, EvaluationReport, Round},
    tab::SessionEvent,
};

use super::{Connection, Upload};
use crate::{
    block_task::{BlockTask, windows},
    error::{Stop, TaskError},
    evaluation_task,
    platform::{Blobs, Clock, Network, Reporter, seconds_since},
    transfer::{self, TransferError},
};

impl<N: Network, C: Clock, B: Blobs, R: Reporter> Connection<'_, N, C, B, R> {
    /// Begins a round. It ends the one in progress, whose delta would come too late; a round before that one is itself
    /// too late.
    pub(super) async fn round(&mut self, round: Round, payload: &[u8]) -> Result<(), Stop> {
        let (number, block) = (round.task.round, round.task.block);
        if self.latest_round.is_some_and(|latest| number < latest) {
            return Ok(());
        }
        self.latest_round = Some(number);
        self.block = None;
        self.delta = Fuse::terminated();
        self.tell(SessionEvent::BlockLoading { round: number, block });
        match self.begin_round(round, payload).await? {
            Ok(task) => {
                self.block = Some(task);
                Ok(())
            }
            Err(error) => self.round_failed(number, &error).await,
        }
    }

    async fn begin_round(
        &mut self,
        round: Round,
        payload: &[u8],
    ) -> Result<Result<BlockTask, TaskError>, Stop> {
        let Some(device) = self.device.clone() else { return Ok(Err(TaskError::NotMeasured)) };
        let Round { task, windows: tensor } = round;
        let (sequences, context) = (self.welcome.run.sequences, self.welcome.run.context);
        let steps = task.learning_rates.len() as u32;
        let windows = match windows(&tensor, payload, &[steps, sequences, context + 1]) {
            Ok(windows) => windows,
            Err(error) => return Ok(Err(error)),
        };
        let began = self.platform.clock.now();
        let files = self.files(&[task.base, task.table]).await?;
        let seconds = seconds_since(&self.platform.clock, began);
        let run = &self.welcome.run;
        let begun = BlockTask::begin(run, task, windows, &files, &device, &mut self.state.block).await;
        Ok(begun.map(|mut task| {
            task.timings.receive = seconds;
            task
        }))
    }

    /// The weights of a round, fetched unless they are there from before.
    async fn files(&mut self, blobs: &[BlobRef]) -> Result<Vec<Rc<Vec<u8>>>, Stop> {
        let mut files = Vec::with_capacity(blobs.len());
        for blob in blobs {
            let bytes = match self.state.block.file(*blob) {
                Some(bytes) => bytes,
                None => Rc::new(self.fetch(*blob).await?),
            };
            files.push((*blob, bytes));
        }
        self.state.block.keep(&files);
        Ok(files.into_iter().map(|(_, bytes)| bytes).collect())
    }

    /// Does one local step, and after the last begins to store what was learned. False without a round in progress.
    pub(super) async fn local_step(&mut self) -> Result<bool, Stop> {
        let Some(mut task) = self.block.take() else { return Ok(false) };
        let (round, block) = (task.task.round, task.task.block);
        let outcome = match task.step(&mut self.state.block, &self.platform.clock).await {
            Ok(Some(score)) => {
                let [step, steps] = task.progress();
                let cross_entropy = score.cross_entropy;
                self.tell(SessionEvent::LocalStep { round, block, step, steps, cross_entropy });
                self.block = Some(task);
                Ok(())
            }
            Ok(None) => self.finish_round(task).await,
            Err(error) => Err(error),
        };
        if let Err(error) = outcome {
            self.round_failed(round, &error).await?;
        }
        Ok(true)
    }

    /// Begins to store what was learned.
    async fn finish_round(&mut self, task: BlockTask) -> Result<(), TaskError> {
        let bytes = task.delta(&mut self.state.block).await?;
        let blob = BlobRef::of(&bytes);
        let mut ready = task.ready(blob, self.platform.reporter.status())?;
        let (platform, token) = (self.platform, self.welcome.token.clone());
        let (line, size) = (self.line, self.state.piece_size.clone());
        let upload: Upload<'_, DeltaReady> = Box::pin(async move {
            let began = platform.clock.now();
            transfer::store(&platform.blobs, &platform.clock, &token, blob, &bytes, &size).await?;
            line.sent.set(line.sent.get() + blob.bytes);
            ready.timings.send = seconds_since(&platform.clock, began);
            Ok(ready)
        });
        self.delta = upload.fuse();
        Ok(())
    }

    /// A delta is stored.
    pub(super) async fn delta_stored(&mut self, done: Result<DeltaReady, TransferError>) -> Result<(), Stop> {
        let ready = done?;
        let (round, block, timings) = (ready.round, ready.block, ready.timings);
        self.line.say(ready).await?;
        self.tell(SessionEvent::DeltaSent {
            round,
            block,
            timings,
            bytes_sent: self.line.sent.get(),
            bytes_received: self.line.received.get(),
        });
        Ok(())
    }

    /// The round cannot go on, and the replica is no longer what it was.
    async fn round_failed(&mut self, round: u64, error: &TaskError) -> Result<(), Stop> {
        self.state.block.forget_replica();
        self.fault(round, error).await
    }

    /// Measures the whole model.
    pub(super) async fn evaluate(&mut self, evaluate: Evaluate, payload: &[u8]) -> Result<(), Stop> {
        let round = evaluate.task.round;
        self.tell(SessionEvent::Evaluating { round });
        match self.evaluation(evaluate, payload).await? {
            Ok(report) => self.line.say(report).await,
            Err(error) => self.fault(round, &error).await,
        }
    }

    async fn evaluation(
        &mut self,
        evaluate: Evaluate,
        payload: &[u8],
    ) -> Result<Result<EvaluationReport, TaskError>, Stop> {
        let Some(device) = self.device.clone() else { return Ok(Err(TaskError::NotMeasured)) };
        let Evaluate { task, windows: tensor } = evaluate;
        let (sequences, context) = (self.welcome.run.sequences, self.welcome.run.context);
        let windows = match windows(&tensor, payload, &[sequences, context + 1]) {
            Ok(windows) => windows,
            Err(error) => return Ok(Err(error)),
        };
        let blobs: Vec<BlobRef> = task.blocks.iter().copied().chain([task.table]).collect();
        let files = self.files(&blobs).await?;
        let (run, clock) = (&self.welcome.run, &self.platform.clock);
        clock.yield_now().await;
        Ok(evaluation_task::measure(run, &task, &windows, &files, &device, clock).await)
    }
}
