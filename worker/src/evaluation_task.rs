//! Block mode: a measurement of the whole model on one batch of the held-out split.

use std::rc::Rc;

use engine::{
    Device,
    denoiser::{evaluate::evaluate, sweep::Composed},
};
use protocol::{
    checked::Checked,
    message::{EvaluationReport, EvaluationTask},
    spec::RunSpec,
};

use crate::{
    error::TaskError,
    platform::{Clock, Compute},
};

/// Measures the model on `windows` [N, T + 1]. `files` are all blocks' and the table's.
///
/// # Errors
/// When the files do not hold the model, or a score is not finite.
pub(crate) async fn measure(
    run: &RunSpec,
    task: &EvaluationTask,
    windows: &[u32],
    files: &[Rc<Vec<u8>>],
    device: &Device,
    clock: &impl Clock,
) -> Result<EvaluationReport, TaskError> {
    let files: Vec<&[u8]> = files.iter().map(|file| file.as_slice()).collect();
    let model = Composed::import(run, &files, device).await?;
    let shape = [run.sequences as usize, run.context as usize];
    let between_passes = async || {
        clock.computed(Compute::EvaluationPass).await;
        clock.yield_now().await;
    };
    let scores = evaluate(&model, windows, shape, task.seed, task.draws, between_passes).await?;
    let report = EvaluationReport { round: task.round, batch: task.batch, scores };
    report.check()?;
    Ok(report)
}
