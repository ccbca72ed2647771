//! A virtual worker: what a session keeps and does in block mode, without its sockets.

use std::sync::Arc;

use engine::{
    Device,
    block::{BlockError, LocalRound, Replica, StepScore, Task},
};
use futures::executor::block_on;
use protocol::{
    blob::BlobHash,
    delta::{self, DeltaEncoding, DeltaError, DeltaHeader},
    message::{Judged, Round},
    spec::RunSpec,
};

use super::{Behaviour, Speed, behaviour::noise};
use crate::run::event::{Traffic, WorkerId};

/// A replica between rounds, with what top-k has not sent yet.
#[derive(Default)]
pub struct Bench {
    replica: Option<Replica>,
    residuals: Vec<Vec<f32>>,
    /// The residuals before the last delta, until that is known to count.
    before: Option<(u64, Vec<Vec<f32>>)>,
}

/// A round it was given, and when it does what: seconds of the virtual clock.
#[derive(Clone)]
pub struct Job {
    pub round: Round,
    pub windows: Arc<Vec<u32>>,
    pub files: [Arc<Vec<u8>>; 2],
    /// When the first local step begins, and the seconds of each.
    pub begin: f64,
    pub step: f64,
    /// When the last local step is done, the delta is stored, and the coordinator hears of it.
    pub end: f64,
    pub stored: f64,
    pub heard: f64,
    /// When its time is up.
    pub due: f64,
    pub trained: Option<Trained>,
}

/// What was learned.
#[derive(Clone)]
pub struct Trained {
    pub delta: Vec<Vec<f32>>,
    pub score: StepScore,
}

pub struct Worker {
    pub id: WorkerId,
    pub connected: bool,
    pub speed: Speed,
    pub behaviour: Behaviour,
    pub bench: Bench,
    /// Files it has.
    pub cached: Vec<BlobHash>,
    pub job: Option<Job>,
    /// Rises with every job: what was planned for an older one does not happen.
    pub turn: u64,
    /// Since its last delta that was looked at.
    pub traffic: Traffic,
    /// Up to when heartbeats are in the traffic.
    pub beaten: f64,
    /// Its first delta, for replays.
    pub first: Option<Vec<Vec<f32>>>,
}

impl Bench {
    /// Does the first `steps` local steps of a job, or all.
    pub fn train(&mut self, run: &RunSpec, job: &Job, steps: Option<u32>) -> Result<Trained, BlockError> {
        let Job { round, files, .. } = job;
        let files: Vec<&[u8]> = files.iter().map(|file| file.as_slice()).collect();
        match self.replica.as_mut().filter(|replica| replica.block() == round.block) {
            Some(replica) => {
                replica.rebase(&files, round.fresh)?;
                // As in a session: an accepted delta is judged before the next round opens.
                if let Some((_, before)) = self.before.take() {
                    self.residuals = before;
                }
                if round.fresh {
                    self.residuals.clear();
                }
            }
            None => {
                let replica = Replica::import(run, round.block, &files, &Device::Host)?;
                *self = Bench { replica: Some(replica), ..Bench::default() };
            }
        }
        let Some(replica) = &mut self.replica else { return Err(BlockError::NotBlockMode) };
        let task = Task {
            seed: round.seed,
            learning_rates: round.learning_rates.clone(),
            windows: job.windows.to_vec(),
            shape: [run.sequences as usize, run.context as usize],
        };
        block_on(async {
            let mut local = LocalRound::begin(task, replica).await?;
            let steps = steps.map_or(local.steps(), |steps| steps as usize);
            while local.steps_done() < steps && local.step(replica).await?.is_some() {}
            Ok(Trained { delta: local.delta(replica).await?, score: local.mean_score() })
        })
    }

    /// A delta as a file.
    pub fn encode(&mut self, header: &DeltaHeader, delta: &[Vec<f32>]) -> Result<Vec<u8>, DeltaError> {
        if let DeltaEncoding::TopK { .. } = header.encoding {
            self.before = Some((header.round, self.residuals.clone()));
            return delta::encode(header, delta, Some(&mut self.residuals));
        }
        delta::encode(header, delta, None)
    }

    /// What a refused delta took from the residuals goes back there.
    pub fn judged(&mut self, judged: &Judged) {
        if let Some((_, before)) = self.before.take_if(|(round, _)| *round == judged.round)
            && judged.refused.is_some()
        {
            self.residuals = before;
        }
    }
}

/// A delta of small normal numbers, in place of training: for predictions of times and bytes.
pub fn dry(lengths: &[u32], keys: [u64; 3]) -> Trained {
    let mut delta: Vec<Vec<f32>> = lengths.iter().map(|&length| vec![0.0; length as usize]).collect();
    noise(&mut delta, 1e-6, keys);
    Trained { delta, score: StepScore { loss: 0.0, cross_entropy: 0.0 } }
}
