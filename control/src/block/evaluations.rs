//! Measurements of published weights: dealt to idle workers, or done by the coordinator.

use protocol::{
    evaluation::Scores,
    message::{EvaluationReport, EvaluationTask},
    refusal::Refusal,
    worker_id::WorkerId,
};

use super::{Action, Block, evaluation::Evaluation, local_steps, round::Progress, seeds};
use crate::{core::Turn, record::Record};

impl Block {
    /// The coordinator takes over what no worker has brought.
    pub(super) fn measure_by_coordinator(&mut self, turn: &mut Turn<'_, Action>) {
        let Some(evaluation) = self.evaluation.as_mut().filter(|evaluation| !evaluation.by_coordinator)
        else {
            return;
        };
        evaluation.by_coordinator = true;
        let (published, batches) = (evaluation.published.clone(), evaluation.missing());
        turn.act(Action::Evaluate { published, batches });
    }

    /// Gives batches to workers that have nothing else to do.
    pub(super) fn deal_evaluation(&mut self, turn: &mut Turn<'_, Action>) {
        let Some(evaluation) = self.evaluation.as_mut().filter(|evaluation| !evaluation.by_coordinator)
        else {
            return;
        };
        let idle = |worker: &WorkerId| match &self.round {
            None => true,
            Some(round) => round
                .shares
                .get(worker)
                .is_none_or(|share| matches!(share.progress, Progress::Accepted(_) | Progress::Out)),
        };
        let measured = turn.core.roster.measured(turn.now);
        for worker in measured.iter().map(|measured| measured.worker).filter(idle) {
            let Some(batch) = evaluation.deal(worker) else { continue };
            let published = &evaluation.published;
            let task = EvaluationTask {
                round: published.round,
                batch,
                blocks: published.blocks.clone(),
                table: published.table,
                seed: seeds::evaluation(turn.core.settings.seed, batch),
                draws: self.settings.draws,
            };
            turn.act(Action::SendEvaluation { worker, task });
        }
    }

    /// A worker has measured a batch.
    pub(super) fn evaluation_report(
        &mut self,
        turn: &mut Turn<'_, Action>,
        worker: WorkerId,
        report: EvaluationReport,
    ) -> Result<(), Refusal> {
        let EvaluationReport { round, batch, scores } = report;
        let Some(evaluation) = &mut self.evaluation else { return Ok(()) };
        if evaluation.published.round != round || !evaluation.has(worker, batch) {
            return Ok(()); // taken back meanwhile
        }
        let blocks = self.updates.len();
        if !scores.is_of_blocks(blocks) || scores.draws != self.settings.draws {
            evaluation.take_back(worker);
            let detail =
                format!("its scores must be of {} draws, with {blocks} in each list", self.settings.draws);
            return Err(Refusal::NotInPlan { message: "EvaluationReport".into(), detail });
        }
        self.scored(turn, round, batch, scores);
        Ok(())
    }

    /// The coordinator has measured a batch, or could not.
    pub(super) fn evaluated(
        &mut self,
        turn: &mut Turn<'_, Action>,
        round: u64,
        batch: u32,
        outcome: Result<Scores, String>,
    ) {
        match outcome {
            Ok(scores) => self.scored(turn, round, batch, scores),
            // A measurement less is no reason to hold a run.
            Err(why) if self.evaluation.as_ref().is_some_and(|e| e.published.round == round) => {
                turn.count_refusal("evaluation_failed");
                turn.record(Record::EvaluationFailed { round, why });
                self.evaluation = None;
                while let Some(point) = self.points.pop_front() {
                    turn.publish(point);
                }
            }
            Err(_) => {}
        }
    }

    fn scored(&mut self, turn: &mut Turn<'_, Action>, round: u64, batch: u32, scores: Scores) {
        let Some(evaluation) = self.evaluation.as_mut().filter(|e| e.published.round == round) else {
            return;
        };
        evaluation.take(batch, scores);
        let Some(scores) = evaluation.done() else { return };
        self.evaluation = None;
        self.evaluated = Some((round, scores.clone()));
        turn.record(Record::Evaluated { round, scores: scores.clone() });
        let step = local_steps::done(round, self.settings.local_steps, turn.core.settings.steps);
        if let Some(point) = self.points.iter_mut().find(|point| point.step == step) {
            point.validation_loss = Some(scores.one_draw);
            point.evaluation = Some(scores);
        }
        // If it was an older round's turn, the last weights are still to be measured.
        let older = self.published.round >= self.settings.rounds && round < self.published.round;
        let hold = usize::from(older);
        while self.points.len() > hold
            && let Some(point) = self.points.pop_front()
        {
            turn.publish(point);
        }
        if older {
            let batches = turn.core.settings.validation_batches;
            self.evaluation = Some(Evaluation::new(self.published.clone(), batches));
            self.measure_by_coordinator(turn);
        }
    }
}
