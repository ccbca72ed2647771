//! One optimizer step in progress: collects what the stages report and says when it is complete.

use std::{collections::BTreeMap, time::Duration};

use protocol::{
    message::{DeviceStatus, StepReport, Timings, ValidationReport},
    worker_id::WorkerId,
};

/// A step being worked on, with the validation of the weights it starts from.
#[derive(Debug, Clone)]
pub(super) struct StepInProgress {
    /// Optimizer steps the weights have seen.
    pub(super) step: u64,
    /// When it began.
    pub(super) opened: Duration,
    /// None: no training in this step, validation only.
    reports: Option<BTreeMap<WorkerId, Option<StepReport>>>,
    /// Loss of each held-out batch.
    validation: Vec<Option<f32>>,
}

/// What a complete step amounts to.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Outcome {
    /// Mean cross-entropy over the micro-batches; None in a step of validation only.
    pub(super) train_loss: Option<f64>,
    /// Global norm of the gradients, before clipping.
    pub(super) gradient_norm: f64,
    /// Mean cross-entropy over the held-out batches; None where none were asked for.
    pub(super) validation_loss: Option<f64>,
    /// Where each stage's time went, and how its device is.
    pub(super) timings: Vec<(WorkerId, Timings, DeviceStatus)>,
}

impl Outcome {
    /// Computing time of all stages over stages times wall time; at most 1, as workers' clocks may be coarse or wrong.
    pub(super) fn efficiency(&self, wall_seconds: f64) -> f64 {
        let busy: f64 = self.timings.iter().map(|(_, timings, _)| timings.busy()).sum();
        (busy / (self.timings.len() as f64 * wall_seconds).max(f64::MIN_POSITIVE)).min(1.0)
    }

    /// Mean over longest computing time of a stage; 1 where none computed.
    pub(super) fn balance(&self) -> f64 {
        let busy = || self.timings.iter().map(|(_, timings, _)| timings.busy());
        let longest = busy().fold(0.0, f64::max);
        if longest > 0.0 { busy().sum::<f64>() / self.timings.len() as f64 / longest } else { 1.0 }
    }
}

/// Why a report is not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum ReportError {
    /// Of another step.
    #[error("it names step {theirs}, the run is at {ours}")]
    OtherStep { theirs: u64, ours: u64 },
    /// Of nobody in the step.
    #[error("this worker has no stage in the step")]
    NotInStep,
    /// A second one.
    #[error("it came twice")]
    Twice,
    /// Not one loss a micro-batch.
    #[error("it has {got} losses, the step has {want}")]
    Losses { got: usize, want: usize },
    /// Of no batch of the step.
    #[error("validation batch {0} was not asked for")]
    NoSuchBatch(u32),
}

impl StepInProgress {
    /// A step of training, with the validation of the weights it starts from.
    pub(super) fn train(step: u64, opened: Duration, workers: &[WorkerId], validation_batches: u32) -> Self {
        Self {
            step,
            opened,
            reports: Some(workers.iter().map(|w| (*w, None)).collect()),
            validation: vec![None; validation_batches as usize],
        }
    }

    /// A step that only measures the weights.
    pub(super) fn validate_only(step: u64, opened: Duration, validation_batches: u32) -> Self {
        Self { step, opened, reports: None, validation: vec![None; validation_batches as usize] }
    }

    /// A worker whose report is still missing, in the order of joining.
    pub(super) fn missing(&self) -> Option<WorkerId> {
        self.reports.iter().flatten().find(|(_, report)| report.is_none()).map(|(worker, _)| *worker)
    }

    /// Note a stage's report. `losses_wanted` is M for the stage with the head, else 0.
    ///
    /// # Errors
    /// Why it does not belong to the step.
    pub(super) fn report(
        &mut self,
        worker: WorkerId,
        report: StepReport,
        losses_wanted: usize,
    ) -> Result<(), ReportError> {
        if report.step != self.step {
            return Err(ReportError::OtherStep { theirs: report.step, ours: self.step });
        }
        if report.losses.len() != losses_wanted {
            return Err(ReportError::Losses { got: report.losses.len(), want: losses_wanted });
        }
        let slot = self.reports.as_mut().and_then(|r| r.get_mut(&worker)).ok_or(ReportError::NotInStep)?;
        if slot.is_some() {
            return Err(ReportError::Twice);
        }
        *slot = Some(report);
        Ok(())
    }

    /// Note the loss of a held-out batch.
    ///
    /// # Errors
    /// Why it does not belong to the step.
    pub(super) fn validated(&mut self, report: &ValidationReport) -> Result<(), ReportError> {
        if report.step != self.step {
            return Err(ReportError::OtherStep { theirs: report.step, ours: self.step });
        }
        let slot =
            self.validation.get_mut(report.batch as usize).ok_or(ReportError::NoSuchBatch(report.batch))?;
        if slot.is_some() {
            return Err(ReportError::Twice);
        }
        *slot = Some(report.loss);
        Ok(())
    }

    /// Mean over the held-out batches, once all are in; None where none were asked for.
    pub(super) fn validation_loss(&self) -> Option<f64> {
        if self.validation.is_empty() {
            return None;
        }
        let losses = self.validation.iter().map(|l| l.map(f64::from)).collect::<Option<Vec<_>>>()?;
        Some(losses.iter().sum::<f64>() / losses.len() as f64)
    }

    /// The outcome, once every stage and every held-out batch has reported.
    pub(super) fn outcome(&self) -> Option<Outcome> {
        if self.validation.iter().any(Option::is_none) {
            return None;
        }
        let Some(reports) = &self.reports else {
            return Some(Outcome {
                train_loss: None,
                gradient_norm: 0.0,
                validation_loss: self.validation_loss(),
                timings: vec![],
            });
        };
        let reports = reports
            .iter()
            .map(|(worker, report)| report.as_ref().map(|r| (*worker, r)))
            .collect::<Option<Vec<_>>>()?;
        let losses: Vec<f64> =
            reports.iter().flat_map(|(_, r)| r.losses.iter().map(|l| f64::from(*l))).collect();
        Some(Outcome {
            train_loss: Some(losses.iter().sum::<f64>() / losses.len() as f64),
            // Finite numbers can have an infinite sum.
            gradient_norm: reports.iter().map(|(_, r)| r.squared_norm).sum::<f64>().min(f64::MAX).sqrt(),
            validation_loss: self.validation_loss(),
            timings: reports.iter().map(|(w, r)| (*w, r.timings, r.status)).collect(),
        })
    }
}
