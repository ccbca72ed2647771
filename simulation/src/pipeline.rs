//! The virtual coordinator's runtime in pipeline mode.

use std::rc::Rc;

use control::{
    Run, Settings,
    curve::Curve,
    pipeline::{Action, Event, Half, Manifest, Pipeline, PipelineRun, Relay, Verdict, plan::Stages},
};
use protocol::{
    message::{Address, Down, Relayed, Targets, TensorFrame, Tokens},
    refusal::Refusal,
    tensor::{CodecError, encode_tokens, verify},
    worker_id::WorkerId,
};

use crate::{
    error::SimulationError,
    harness::{Desk, Runtime},
    network::Network,
    windows::Windows,
};

/// A coordinator of pipeline mode with a disk of snapshots.
pub struct PipelineRuntime<W> {
    settings: Settings,
    stages: Stages,
    windows: W,
    relay: Relay,
    micro_batches: u32,
    /// The manifest on the disk that counts.
    committed: Option<Manifest>,
}

impl<W: Windows> PipelineRuntime<W> {
    /// A run from its first step.
    pub fn new(settings: Settings, stages: Stages, windows: W) -> Self {
        let micro_batches = settings.run.micro_batches;
        Self { settings, stages, windows, relay: Relay::closed(0), micro_batches, committed: None }
    }

    /// The newest snapshot on the disk.
    pub fn committed(&self) -> Option<&Manifest> {
        self.committed.as_ref()
    }

    fn send_batch(
        &mut self,
        worker: WorkerId,
        to: Address,
        half: Half,
        desk: &mut Desk<'_, Self>,
    ) -> Result<(), SimulationError> {
        let run = &self.settings.run;
        let tokens = self.windows.pass(&to, half, self.micro_batches);
        let (tensor, payload) = encode_tokens(&tokens, &[run.sequences, run.context])?;
        let frame = TensorFrame { to, tensor };
        let message: Down = match half {
            Half::Inputs => Tokens(frame).into(),
            Half::Targets => Targets(frame).into(),
        };
        desk.send(worker, message, &payload)
    }

    fn commit(&mut self, mut manifest: Manifest, desk: &mut Desk<'_, Self>) -> Result<(), SimulationError> {
        let steps_done = manifest.steps_done;
        if desk.is_disk_full() {
            desk.tell(Event::CommitFailed { steps_done, why: "the disk is full".into(), culprit: None });
            return Ok(());
        }
        let file = |blob: protocol::blob::BlobHash| desk.network.file(blob).cloned();
        let parts: Option<Vec<Rc<Vec<u8>>>> =
            manifest.parts.iter().map(|part| file(part.blob.hash)).collect();
        let parts = parts.ok_or(SimulationError::Lost("a part of a snapshot"))?;
        let parts: Vec<&[u8]> = parts.iter().map(|part| part.as_slice()).collect();
        manifest.state = engine::checkpoint::state_hash(&parts)?.to_string();
        desk.write(manifest);
        Ok(())
    }
}

impl<W: Windows> Runtime for PipelineRuntime<W> {
    type Mode = Pipeline;
    type Write = Manifest;

    fn begin(&mut self, _: &mut Network) -> Result<Run<Pipeline>, SimulationError> {
        let manifest = self.committed.clone();
        self.relay = Relay::closed(manifest.as_ref().map_or(0, |manifest| manifest.epoch));
        Ok(PipelineRun::new(self.settings.clone(), self.stages, manifest, Curve::default()))
    }

    fn act(&mut self, action: Action, desk: &mut Desk<'_, Self>) -> Result<(), SimulationError> {
        match action {
            Action::SendBatch { worker, to, half } => self.send_batch(worker, to, half, desk),
            Action::Route(relay) => {
                self.relay = relay;
                Ok(())
            }
            Action::OpenStep { step } => {
                self.relay.open_step(step);
                Ok(())
            }
            Action::Commit(manifest) => self.commit(manifest, desk),
            // Nothing is short of room here.
            Action::Prune { .. } => Ok(()),
            // Nobody asks for texts here.
            Action::Decode { .. } | Action::Traversed { .. } | Action::CachesLost | Action::Texts(_) => {
                Ok(())
            }
            Action::FindOwing => {
                desk.tell(Event::Owing(self.relay.owing()));
                Ok(())
            }
        }
    }

    fn relay(
        &mut self,
        from: WorkerId,
        message: &Relayed,
        payload: &[u8],
    ) -> Result<Option<WorkerId>, Refusal> {
        let verdict = self.relay.admit(from, message)?;
        if self.relay.verify_all {
            let broken = |error: CodecError| Refusal::Malformed { detail: error.to_string() };
            verify(&message.frame().tensor, payload).map_err(broken)?;
        }
        Ok(match verdict {
            Verdict::Forward(to) => Some(to),
            Verdict::Stale => None,
        })
    }

    fn written(&mut self, manifest: Manifest) -> Option<Event> {
        let (steps_done, state) = (manifest.steps_done, manifest.state.clone());
        // On disk each has a file of its own; the one of most steps counts.
        if self.committed.as_ref().is_none_or(|committed| committed.steps_done <= steps_done) {
            self.committed = Some(manifest);
        }
        Some(Event::Committed { steps_done, state })
    }
}
