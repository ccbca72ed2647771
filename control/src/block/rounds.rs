//! Rounds: opened, closed in time, averaged, and noted.

use std::{collections::BTreeMap, time::Duration};

use protocol::{
    delta::DeltaRefusal,
    message::RoundTask,
    published::Published,
    view::{CurvePoint, Phase},
    worker_id::WorkerId,
};

use super::{
    Action, Averaging, Block,
    evaluation::{Evaluation, Evaluator},
    expectation::{LONGEST, MISSED},
    local_steps,
    manifest::Work,
    placement::{Candidate, place},
    round::{Progress, RoundInProgress, Share},
    seeds,
};
use crate::{core::Turn, record::Record};

/// Measurements that workers have not finished after so many rounds are finished by the coordinator.
const EVALUATION_ROUNDS: u64 = 10;
/// Weights that the disk did not take are published again after this long.
const PUBLISH_AGAIN: Duration = Duration::from_secs(5);

impl Block {
    /// Opens a round if the workers suffice.
    pub(super) fn open_round(&mut self, turn: &mut Turn<'_, Action>) {
        if let Some((phase, words)) = turn.core.held() {
            turn.enter(phase, words);
            return;
        }
        let fitting = self.fitting(turn.core, turn.now);
        if fitting.is_empty() || (fitting.len() as u32) < self.workers_wanted(turn.core) {
            let words = self.waiting_reason(turn.core, turn.now);
            turn.enter(Phase::Waiting, words);
            return;
        }
        let candidates: Vec<Candidate> = fitting
            .iter()
            .map(|measured| {
                let replica = self.replicas.get(&measured.worker);
                Candidate {
                    worker: measured.worker,
                    seconds: self.expected_seconds(measured.worker, Some(measured)),
                    holds: replica.and_then(|replica| replica.holds),
                    rounds_held: replica.map_or(0, |replica| replica.rounds_held),
                }
            })
            .collect();
        turn.core.started = true;
        let deadline = self.deadline_of(&candidates);
        let number = self.published.round;
        let settings = &turn.core.settings;
        let rates: Vec<f64> = local_steps::of_round(number, self.settings.local_steps, settings.steps)
            .map(|step| settings.learning_rate.at(step))
            .collect();
        let seed = settings.seed;
        let mut shares = BTreeMap::new();
        for (slot, (worker, block)) in (0..).zip(place(&candidates, &self.updates)) {
            let replica = self.replicas.entry(worker).or_default();
            let fresh = self.settings.fresh_moments || replica.holds != Some(block);
            if fresh {
                replica.moments_since = Some(number);
            }
            if replica.holds != Some(block) {
                (replica.holds, replica.rounds_held) = (Some(block), 0);
            }
            replica.last = Some((number, turn.now));
            let moments_since = replica.moments_since;
            let share = Share { block, slot, moments_since, progress: Progress::Working, arrived: None };
            shares.insert(worker, share);
            let task = RoundTask {
                round: number,
                block,
                base: self.published.blocks[block as usize],
                table: self.published.table,
                seed: seeds::noise(seed, number, slot),
                learning_rates: rates.clone(),
                fresh,
                deadline_ms: (deadline * 1e3) as u64,
            };
            turn.act(Action::SendRound { worker, task, slot });
        }
        turn.record(Record::RoundOpened {
            round: number,
            deadline_seconds: deadline,
            replicas: shares.iter().map(|(worker, share)| (*worker, share.block)).collect(),
        });
        let count = shares.len();
        self.averaging = Averaging::No;
        self.round = Some(RoundInProgress { round: number, opened: turn.now, deadline, shares });
        let plural = if count == 1 { "" } else { "s" };
        turn.enter(Phase::Training, format!("round {} on {count} worker{plural}", number + 1));
    }

    /// Seconds that a round of these workers may take; the silent ones are not waited for, unless all are.
    fn deadline_of(&self, candidates: &[Candidate]) -> f64 {
        let heard = candidates.iter().filter(|candidate| !self.is_silent(candidate.worker));
        let mut expected: Vec<f64> = heard.map(|candidate| candidate.seconds).collect();
        if expected.is_empty() {
            expected = candidates.iter().map(|candidate| candidate.seconds).collect();
        }
        self.deadlines.seconds(&expected)
    }

    /// Closes the round if it has come to its end; averages it again if the disk did not take it.
    pub(super) fn close_round(&mut self, turn: &mut Turn<'_, Action>) {
        let Some(round) = &self.round else { return };
        match self.averaging {
            Averaging::No if round.is_checking() => {}
            Averaging::No if round.came_to_nothing() => {
                // As if it had never begun: a worker that fails again and again must not use up the rounds.
                turn.record(Record::RoundTakenBack { round: round.round });
                self.round = None;
            }
            Averaging::No if self.may_close(round, turn.now) => {
                self.settle(turn);
                self.average(turn);
            }
            Averaging::Again(at) if at <= turn.now => self.average(turn),
            Averaging::No | Averaging::Running | Averaging::Again(_) => {}
        }
    }

    fn may_close(&self, round: &RoundInProgress, now: Duration) -> bool {
        // A silent worker must not hold up every round until the longest time is over.
        let waited_for = round.shares.keys().filter(|worker| !self.is_silent(**worker)).count();
        let arrived = round.accepted().count();
        round.is_settled()
            || self.deadlines.may_close(round.elapsed(now), round.deadline, arrived, waited_for)
    }

    /// Notes who was in time and who was not.
    fn settle(&mut self, turn: &mut Turn<'_, Action>) {
        let Some(round) = &self.round else { return };
        let last = round.accepted().filter_map(|(_, share, _)| share.arrived).fold(0.0, f64::max);
        self.deadlines.learn(round.participation(), last / round.deadline);
        let measured = turn.core.roster.measured(turn.now);
        let late: Vec<(WorkerId, u32, f64)> = round
            .shares
            .iter()
            .filter(|(_, share)| share.progress == Progress::Working)
            .map(|(worker, share)| {
                let measured = measured.iter().find(|m| m.worker == *worker);
                (*worker, share.block, self.expected_seconds(*worker, measured))
            })
            .collect();
        self.totals.assigned += round.shares.len() as u64;
        for (_, _, accepted) in round.accepted() {
            self.totals.accepted += 1;
            self.totals.bytes_down = self.totals.bytes_down.saturating_add(accepted.traffic.down);
            self.totals.bytes_up = self.totals.bytes_up.saturating_add(accepted.traffic.up);
        }
        let number = round.round;
        for (worker, block, expected) in late {
            turn.record(Record::DeltaMissed { round: number, block, worker });
            if let Some(replica) = self.replicas.get_mut(&worker) {
                replica.view.missed += 1;
                replica.missed += 1;
                replica.moments_since = None;
                // From its own time, not from how long the round waited: a silent worker would lengthen the next
                // deadline, and then the one after by that.
                replica.observed = Some((expected * MISSED).min(LONGEST));
            }
        }
    }

    /// Has what was accepted averaged and published.
    fn average(&mut self, turn: &mut Turn<'_, Action>) {
        let Some(round) = &self.round else { return };
        let work: Vec<Work> = round
            .accepted()
            .map(|(worker, share, accepted)| Work {
                worker,
                block: share.block,
                slot: share.slot,
                moments_since: share.moments_since,
                delta: accepted.blob,
            })
            .collect();
        let number = round.round;
        let done = number + 1;
        let settings = &turn.core.settings;
        let steps = |rounds| local_steps::done(rounds, self.settings.local_steps, settings.steps);
        let checkpoint = done >= self.settings.rounds
            || turn.core.stopping
            || passes(settings.snapshot_every, steps(number), steps(done));
        self.averaging = Averaging::Running;
        turn.act(Action::Average {
            round: number,
            work,
            updates: self.updates.clone(),
            totals: self.totals,
            checkpoint,
        });
    }

    /// The round's weights could not be published.
    pub(super) fn average_failed(
        &mut self,
        turn: &mut Turn<'_, Action>,
        number: u64,
        why: &str,
        again: bool,
    ) {
        let Some(round) = self.round.as_mut().filter(|round| round.round == number) else { return };
        turn.count_refusal("average_failed");
        let accepted: Vec<WorkerId> = round.accepted().map(|(worker, ..)| worker).collect();
        if again || accepted.is_empty() {
            self.averaging = Averaging::Again(turn.now + PUBLISH_AGAIN);
            turn.explain(format!("held: the weights after round {} could not be kept: {why}", number + 1));
            return;
        }
        // Deltas that cannot be averaged are worth nothing: the round closes without them.
        for worker in accepted {
            if let Some(share) = round.shares.get_mut(&worker) {
                share.progress = Progress::Out;
                self.totals.accepted = self.totals.accepted.saturating_sub(1);
            }
        }
        turn.explain(format!("round {} counts for nothing: {why}", number + 1));
        self.average(turn);
    }

    /// The round's weights are published.
    pub(super) fn averaged(
        &mut self,
        turn: &mut Turn<'_, Action>,
        published: Published,
        updated: &[bool],
        dropped: &[(WorkerId, DeltaRefusal)],
    ) {
        let Some(mut round) = self.round.take_if(|round| round.round + 1 == published.round) else { return };
        self.averaging = Averaging::No;
        for (worker, refusal) in dropped {
            self.totals.accepted = self.totals.accepted.saturating_sub(1);
            let Some(share) = round.shares.get_mut(worker) else { continue };
            share.progress = Progress::Out;
            let block = share.block;
            if let Some(replica) = self.replicas.get_mut(worker) {
                replica.view.accepted = replica.view.accepted.saturating_sub(1);
            }
            self.delta_refused(turn, *worker, round.round, block, refusal);
        }
        let before = self.steps_done(turn.core);
        self.published = published;
        for (block, _) in updated.iter().enumerate().filter(|(_, updated)| **updated) {
            self.updates[block] += 1;
            let of_block = round.accepted().filter(|(_, share, _)| share.block as usize == block);
            self.local[block] = mean(of_block.map(|(_, _, accepted)| accepted.cross_entropy));
        }
        let seconds = round.elapsed(turn.now);
        let (accepted, participation) = (round.accepted().count(), round.participation());
        self.participation = Some(participation);
        self.participations.0 += participation;
        self.participations.1 += 1;
        self.round_seconds = Some(seconds);
        let run = &turn.core.settings.run;
        let steps = self.steps_done(turn.core);
        let tokens = f64::from(run.sequences) * f64::from(run.context) * (steps - before) as f64;
        self.tokens_per_second = if seconds > 0.0 { tokens * accepted as f64 / seconds } else { 0.0 };
        turn.record(Record::RoundClosed {
            round: round.round,
            seconds,
            assigned: round.shares.len() as u64,
            accepted: accepted as u64,
            updated: (0..).zip(updated).filter(|(_, updated)| **updated).map(|(block, _)| block).collect(),
            state: self.published.state().to_string(),
        });
        let train_loss = mean(round.accepted().map(|(_, _, accepted)| accepted.cross_entropy));
        self.note(turn, before, steps, train_loss, participation);
    }

    /// A point for the learning curve, and a measurement where one is due.
    fn note(
        &mut self,
        turn: &mut Turn<'_, Action>,
        before: u64,
        steps: u64,
        train_loss: Option<f64>,
        participation: f64,
    ) {
        let settings = &turn.core.settings;
        let every = settings.validate_every;
        let last = self.published.round >= self.settings.rounds;
        let due = every > 0 && last || passes(every, before, steps);
        let batches = settings.validation_batches;
        if let Some(train_loss) = train_loss {
            let point = CurvePoint {
                step: steps,
                train_loss,
                validation_loss: None,
                learning_rate: settings.learning_rate.at(steps.saturating_sub(1)),
                tokens_per_second: self.tokens_per_second,
                evaluation: None,
                participation: Some(participation),
            };
            if due && (last || self.evaluation.is_none()) || !self.points.is_empty() {
                self.points.push_back(point);
            } else {
                turn.publish(point);
            }
        }
        // One at a time: where measuring is slower than training, fewer rounds are measured.
        if due && self.evaluation.is_none() {
            self.evaluation = Some(Evaluation::new(self.published.clone(), batches));
            if self.settings.evaluator == Evaluator::Coordinator {
                self.measure_by_coordinator(turn);
            }
        } else if due && last || self.is_measuring_slowly() {
            // What is being measured is older than the last weights, or waits for a worker that does not answer.
            self.measure_by_coordinator(turn);
        }
    }

    fn is_measuring_slowly(&self) -> bool {
        let since = |evaluation: &Evaluation| self.published.round.saturating_sub(evaluation.published.round);
        self.evaluation.as_ref().is_some_and(|evaluation| since(evaluation) >= EVALUATION_ROUNDS)
    }
}

/// Whether a multiple of `every` lies after `before` and not after `now`; 0: never.
fn passes(every: u64, before: u64, now: u64) -> bool {
    every > 0 && now / every > before / every
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let values: Vec<f64> = values.collect();
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}
