//! Pipeline mode on a connection: assignments, frames of the plan, updates, and parts of snapshots.

use std::rc::Rc;

use protocol::{
    blob::BlobRef,
    message::{Apply, Decode, Ready, SnapshotReady},
    spec::{Assignment, WeightSource},
    tab::SessionEvent,
};

use super::Connection;
use crate::{
    checks::largest_file,
    error::{Stop, TaskError},
    pipeline_task::PipelineTask,
    platform::{Blobs, Clock, Network, Reporter, seconds_since},
    transfer::{self, TransferError},
};

impl<N: Network, C: Clock, B: Blobs, R: Reporter> Connection<'_, N, C, B, R> {
    /// Takes a share of a plan: fetches its weights and says that it is ready.
    pub(super) async fn assign(&mut self, assignment: Assignment) -> Result<(), Stop> {
        let epoch = assignment.epoch;
        let before = self.pipeline.take().or(self.ended.take()).filter(|task| task.holds(&assignment));
        self.ended = None;
        let Some(device) = self.device.clone() else {
            return self.fault(epoch, &TaskError::NotMeasured).await;
        };
        let hops = assignment.hops.clone();
        self.tell(SessionEvent::Loading { epoch, hops: hops.clone() });
        if let Some(mut task) = before {
            return match task.renew(assignment) {
                Ok(()) => self.loaded(task).await,
                Err(error) => self.fault(epoch, &error).await,
            };
        }
        let mut files = Vec::new();
        if let WeightSource::Snapshot(parts) = &assignment.weights {
            for part in parts {
                files.push(self.snapshot_part(*part).await?);
            }
        }
        match PipelineTask::load(&self.welcome.run, assignment, &files, &device) {
            Ok(task) => self.loaded(task).await,
            Err(error) => self.fault(epoch, &error).await,
        }
    }

    /// Says that a stage is ready.
    async fn loaded(&mut self, task: PipelineTask) -> Result<(), Stop> {
        let (epoch, hops) = (task.epoch(), task.hops().to_vec());
        self.pipeline = Some(task);
        self.line.say(Ready { epoch }).await?;
        self.tell(match self.welcome.run.trains {
            true => SessionEvent::Training { epoch, hops },
            false => SessionEvent::Serving { epoch, hops },
        });
        Ok(())
    }

    /// New tokens of texts are there: computes them and sends what comes of it. Without a plan they are of one that was
    /// revoked.
    pub(super) async fn decode(&mut self, decode: &Decode, payload: &[u8]) -> Result<(), Stop> {
        let Some(task) = &mut self.pipeline else { return Ok(()) };
        match task.decode(decode, payload, &self.platform.clock).await {
            Ok(Some((message, payload))) => {
                self.line.send(message, &payload).await?;
                self.platform.clock.yield_now().await;
                Ok(())
            }
            Ok(None) => Ok(()),
            Err(error) => self.stage_failed(&error).await,
        }
    }

    async fn snapshot_part(&self, part: BlobRef) -> Result<Rc<Vec<u8>>, Stop> {
        match self.state.snapshots.get(part.hash) {
            Some(bytes) => Ok(bytes),
            None => Ok(Rc::new(self.fetch(part).await?)),
        }
    }

    /// Fetches a file of the run's weights.
    pub(super) async fn fetch(&self, blob: BlobRef) -> Result<Vec<u8>, TransferError> {
        let (platform, token) = (self.platform, &self.welcome.token);
        let limit = largest_file(&self.welcome.run);
        let bytes = transfer::fetch(&platform.blobs, &platform.clock, token, blob, limit).await?;
        self.line.received.set(self.line.received.get() + blob.bytes);
        Ok(bytes)
    }

    /// The plan of this epoch, and those before it, have ended.
    pub(super) fn revoke(&mut self, epoch: u64) {
        if let Some(task) = self.pipeline.take_if(|task| task.epoch() <= epoch) {
            self.tell(SessionEvent::Spare);
            if !self.welcome.run.trains {
                self.ended = Some(task);
            }
        }
    }

    /// A frame of the plan is there. Without a plan it is of one that was revoked.
    pub(super) async fn arrived(
        &mut self,
        take: impl FnOnce(&mut PipelineTask) -> Result<(), TaskError>,
    ) -> Result<(), Stop> {
        let clock = &self.platform.clock;
        let began = clock.now();
        let Some(task) = &mut self.pipeline else { return Ok(()) };
        let taken = take(task);
        task.timings.receive += seconds_since(clock, began);
        match taken {
            Ok(()) => Ok(()),
            Err(error) => self.stage_failed(&error).await,
        }
    }

    /// Computes the next pass and sends what comes of it. False when something must arrive first.
    pub(super) async fn pipeline_pass(&mut self) -> Result<bool, Stop> {
        let Some(task) = &mut self.pipeline else { return Ok(false) };
        let Some(op) = task.next_op() else { return Ok(false) };
        let clock = &self.platform.clock;
        match task.perform(op, clock, || self.platform.reporter.status()).await {
            Ok(outgoing) => {
                let began = clock.now();
                for (message, payload) in outgoing {
                    self.line.send(message, &payload).await?;
                }
                task.timings.send += seconds_since(clock, began);
            }
            Err(error) => self.stage_failed(&error).await?,
        }
        Ok(true)
    }

    /// All stages have reported: updates the weights.
    pub(super) async fn apply(&mut self, apply: &Apply) -> Result<(), Stop> {
        let Some(task) = &mut self.pipeline else { return Ok(()) };
        let epoch = task.epoch();
        match task.apply(apply, &self.platform.clock).await {
            Ok(Some(applied)) => {
                if let Some(bytes) = applied.snapshot {
                    self.store_snapshot(epoch, applied.steps_done, bytes);
                }
                self.tell(SessionEvent::Step {
                    step: applied.steps_done,
                    micro_batches: applied.micro_batches,
                    timings: applied.timings,
                    loss: applied.loss,
                    bytes_sent: self.line.sent.get(),
                    bytes_received: self.line.received.get(),
                });
                Ok(())
            }
            Ok(None) => Ok(()),
            Err(error) => self.stage_failed(&error).await,
        }
    }

    /// Begins to store a part of a snapshot, and keeps it.
    fn store_snapshot(&mut self, epoch: u64, steps_done: u64, bytes: Vec<u8>) {
        let (blob, bytes) = (BlobRef::of(&bytes), Rc::new(bytes));
        self.state.snapshots.keep(steps_done, blob.hash, bytes.clone());
        let (platform, token) = (self.platform, self.welcome.token.clone());
        let (line, size) = (self.line, self.state.piece_size.clone());
        self.snapshots.push(Box::pin(async move {
            transfer::store(&platform.blobs, &platform.clock, &token, blob, &bytes, &size).await?;
            line.sent.set(line.sent.get() + blob.bytes);
            Ok(SnapshotReady { epoch, steps_done, blob })
        }));
    }

    /// A part of a snapshot is stored. Where it is not, the snapshot stays incomplete: another connection may help.
    pub(super) async fn snapshot_stored(
        &mut self,
        done: Result<SnapshotReady, TransferError>,
    ) -> Result<(), Stop> {
        self.line.say(done?).await
    }

    /// The stage cannot go on.
    async fn stage_failed(&mut self, error: &TaskError) -> Result<(), Stop> {
        let Some(task) = self.pipeline.take() else { return Ok(()) };
        self.fault(task.epoch(), error).await
    }
}
