//! Deltas: announced by workers, checked by the aggregation server, accepted or refused.

use protocol::{
    delta::DeltaRefusal,
    limits::{SENTENCE, shorten},
    message::{DeltaOutcome, DeltaReady},
    refusal::Refusal,
    worker_id::WorkerId,
};

use super::{
    Action, Averaging, Block,
    expectation::NEWEST,
    round::{Accepted, Progress},
};
use crate::{
    core::Turn,
    record::{Record, Traffic},
};

impl Block {
    /// A worker says that its delta lies in the store.
    pub(super) fn delta_ready(
        &mut self,
        turn: &mut Turn<'_, Action>,
        worker: WorkerId,
        ready: DeltaReady,
    ) -> Result<(), Refusal> {
        let given = self.replicas.get(&worker).and_then(|replica| replica.last);
        let Some((given, opened)) = given else {
            // Of who was never given anything to do, nothing is seen on the pages.
            let refusal = DeltaRefusal::NotAssigned { round: ready.round };
            refuse(turn, worker, ready.round, ready.block, &refusal);
            let detail = "a delta counts only from a worker that was given a block".into();
            return turn.core.roster.unfounded(worker, "DeltaReady", detail);
        };
        if given == ready.round {
            if let Some(known) = turn.core.roster.get_mut(worker) {
                (known.status, known.timings) = (ready.status, ready.timings);
            }
            // How long it took says something even of a delta that is too late.
            if let Some(replica) = self.replicas.get_mut(&worker) {
                let seconds = turn.now.saturating_sub(opened).as_secs_f64();
                replica.observed = Some(replica.observed.map_or(seconds, |o| o + NEWEST * (seconds - o)));
            }
        }
        let (number, block, blob) = (ready.round, ready.block, ready.blob);
        let taken = match &mut self.round {
            Some(round) if self.averaging == Averaging::No => round.ready(turn.now, worker, ready),
            _ if number <= self.published.round => Err(DeltaRefusal::Late { round: number }),
            _ => Err(DeltaRefusal::Stale { found: number, expected: self.published.round }),
        };
        match taken {
            Ok(()) => {
                turn.act(Action::CheckDelta { worker, block, published: self.published.clone(), blob });
            }
            Err(refusal) => self.delta_refused(turn, worker, number, block, &refusal),
        }
        Ok(())
    }

    /// Says and notes why a delta of a worker that was given something to do was not taken.
    pub(super) fn delta_refused(
        &mut self,
        turn: &mut Turn<'_, Action>,
        worker: WorkerId,
        round: u64,
        block: u32,
        refusal: &DeltaRefusal,
    ) {
        self.totals.refused += 1;
        if let Some(replica) = self.replicas.get_mut(&worker) {
            replica.view.refused += 1;
            replica.moments_since = None;
        }
        refuse(turn, worker, round, block, refusal);
    }

    /// The aggregation server has looked at a delta.
    pub(super) fn delta_checked(
        &mut self,
        turn: &mut Turn<'_, Action>,
        worker: WorkerId,
        number: u64,
        outcome: Result<f64, DeltaRefusal>,
        traffic: Traffic,
    ) {
        let Some(round) = self.round.as_mut().filter(|round| round.round == number) else { return };
        let Some(share) = round.shares.get_mut(&worker) else { return };
        let Progress::Checking(ready) = share.progress.clone() else { return };
        let block = share.block;
        let norm = match outcome {
            Ok(norm) => norm,
            Err(refusal) => {
                share.progress = Progress::Out;
                self.delta_refused(turn, worker, number, block, &refusal);
                return;
            }
        };
        let cross_entropy = f64::from(ready.cross_entropy);
        share.progress = Progress::Accepted(Accepted { blob: ready.blob, norm, cross_entropy, traffic });
        let seconds = share.arrived.unwrap_or_default();
        if let Some(replica) = self.replicas.get_mut(&worker) {
            replica.missed = 0;
            replica.rounds_held += 1;
            replica.view.accepted += 1;
            replica.view.bytes_down = traffic.down;
            replica.view.bytes_up = traffic.up;
            replica.view.round_seconds = Some(seconds);
        }
        turn.core.roster.trust([worker]);
        turn.record(Record::DeltaAccepted {
            round: number,
            block,
            worker,
            norm,
            cross_entropy,
            seconds,
            compute_seconds: ready.timings.busy(),
            traffic,
        });
        if turn.core.roster.contains(worker) {
            turn.send(worker, DeltaOutcome { round: number, block, refused: None });
        }
    }
}

/// Tells a worker why its delta was not taken, if it is still there; counts and records it.
fn refuse(turn: &mut Turn<'_, Action>, worker: WorkerId, round: u64, block: u32, refusal: &DeltaRefusal) {
    turn.count_refusal(refusal.name());
    let words = refusal.to_string();
    if turn.core.roster.contains(worker) {
        let refused = Some(shorten(&words, SENTENCE));
        turn.send(worker, DeltaOutcome { round, block, refused });
    }
    turn.record(Record::DeltaRefused { round, worker, refusal: refusal.name().to_string(), words });
}
