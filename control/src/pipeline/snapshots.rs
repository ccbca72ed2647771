//! Snapshots on their way: asked for, collected, written, and written again when the disk did not take them.

use std::time::Duration;

use protocol::{message::SnapshotKept, message::SnapshotReady, worker_id::WorkerId};

use super::{Action, Pipeline, snapshot::Manifest};
use crate::{core::Turn, record::Record};

/// A manifest that could not be written is tried again after this long.
const WRITE_AGAIN: Duration = Duration::from_secs(5);

/// A complete snapshot whose manifest is not known to be on disk.
#[derive(Debug, Clone)]
pub(super) struct Writing {
    manifest: Manifest,
    /// Since when it is being written.
    since: Duration,
    /// When it is tried again; None while it is being written.
    again: Option<Duration>,
}

impl Pipeline {
    /// Whether the step that has just been done ends with a snapshot.
    pub(super) fn wants_snapshot(&self, turn: &Turn<'_, Action>) -> bool {
        let core = &*turn.core;
        let last = self.steps_done >= core.settings.steps;
        let replan = self.replan.is_some();
        let wanted = self.due(core.settings.snapshot_every) || last || core.stopping || core.paused || replan;
        // One snapshot at a time; but what the run waits for replaces one that is still on its way.
        let must = last || core.stopping || replan;
        // One that never became whole does not count as on its way.
        let collecting = self
            .collecting
            .as_ref()
            .is_some_and(|c| turn.now.saturating_sub(c.since) <= core.settings.step_deadline);
        wanted && (must || (!collecting && self.writing.is_none()))
    }

    /// A part lies in the store.
    pub(super) fn snapshot_part(
        &mut self,
        turn: &mut Turn<'_, Action>,
        worker: WorkerId,
        part: &SnapshotReady,
    ) {
        if part.epoch != self.epoch {
            return;
        }
        let (Some(in_force), Some(collecting)) = (&self.in_force, &mut self.collecting) else { return };
        if !collecting.part(worker, part.steps_done, part.blob) {
            return;
        }
        self.progressed = turn.now;
        let run = &turn.core.settings.run;
        if let Some(manifest) =
            collecting.complete(self.epoch, &run.model, run.micro_batches, &in_force.plan.stages)
        {
            self.collecting = None;
            self.writing = Some(Writing { manifest: manifest.clone(), since: turn.now, again: None });
            turn.act(Action::Commit(manifest));
        }
    }

    /// The manifest is on disk.
    pub(super) fn committed(&mut self, turn: &mut Turn<'_, Action>, steps_done: u64, state: String) {
        let Some(Writing { manifest, .. }) =
            self.writing.take_if(|writing| writing.manifest.steps_done == steps_done)
        else {
            return;
        };
        let before = self.snapshot.as_ref().map_or(0, |manifest| manifest.steps_done);
        let workers: Vec<WorkerId> = manifest.parts.iter().map(|part| part.worker).collect();
        turn.core.roster.trust(workers.iter().copied());
        turn.record(Record::WorkAccepted {
            epoch: manifest.epoch,
            first_step: before,
            steps_done,
            workers,
            micro_batches: manifest.micro_batches,
        });
        self.snapshot = Some(Manifest { state: state.clone(), ..manifest });
        self.snapshot_fault = None;
        self.verify_all = false;
        self.progressed = turn.now;
        turn.record(Record::SnapshotCommitted { steps_done, state });
        turn.act(Action::Prune { accepted: steps_done });
        for worker in turn.core.roster.ids() {
            turn.send(worker, SnapshotKept { steps_done });
        }
    }

    /// The snapshot could not be kept.
    pub(super) fn commit_failed(
        &mut self,
        turn: &mut Turn<'_, Action>,
        steps_done: u64,
        why: String,
        culprit: Option<WorkerId>,
    ) {
        if self.writing.as_ref().is_none_or(|writing| writing.manifest.steps_done != steps_done) {
            return;
        }
        let words = format!("the snapshot of step {steps_done} could not be kept: {why}");
        turn.record(Record::SnapshotFailed { steps_done, why });
        if let Some(worker) = culprit {
            // No honest worker can load it: what was computed since the last one is worth nothing.
            self.writing = None;
            turn.suspend(worker, "bad_snapshot", &words);
            self.discard_plan(turn, words);
            return;
        }
        self.snapshot_fault = Some(words);
        if let Some(writing) = &mut self.writing {
            writing.again = Some(turn.now + WRITE_AGAIN);
        }
    }

    /// Tries again to write a manifest that the disk did not take.
    pub(super) fn write_again(&mut self, turn: &mut Turn<'_, Action>) {
        let now = turn.now;
        if let Some(writing) = &mut self.writing
            && writing.again.take_if(|again| *again <= now).is_some()
        {
            writing.since = now;
            turn.act(Action::Commit(writing.manifest.clone()));
        }
    }

    /// Whether a manifest is on its way to the disk, which has not refused it.
    pub(super) fn is_writing(&self, turn: &Turn<'_, Action>) -> bool {
        let patience = turn.core.settings.step_deadline;
        self.writing
            .as_ref()
            .is_some_and(|w| w.again.is_none() && turn.now.saturating_sub(w.since) <= patience)
    }
}
