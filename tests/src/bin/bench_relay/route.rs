//! Two peers, with the coordinator or the forwarder between them.

use anyhow::{Result, ensure};
use protocol::message::{Address, Down, Targets, ToWorker, Tokens};
use tests::Coordinator;
use tokio::try_join;

use crate::{
    forwarder::Forwarder,
    frames::{Payload, Shape, Step},
    peer::{Peer, Stream},
};

pub struct Route {
    /// Of the process between the peers.
    pub pid: u32,
    /// Holds hop 0.
    pub first: Peer,
    /// Holds hop 1.
    pub second: Peer,
    pub payload: Payload,
    pub gate: Gate,
    pub micro_batches: u32,
}

/// What lets the frames of a step pass.
#[derive(Clone, Copy)]
pub enum Gate {
    /// Everything passes at any time.
    Open { steps: u64 },
    /// Only what fits the plan and the step, which is here the one opened last.
    Run { epoch: u64, step: Option<u64> },
}

impl Route {
    /// Joins the run with both peers, up to its first step.
    pub async fn through_coordinator(coordinator: &Coordinator, shape: &Shape) -> Result<Self> {
        let pid = coordinator.process.id();
        // Stages are dealt in the order of joining.
        let mut first = Peer::join(&coordinator.url).await?;
        let mut second = Peer::join(&coordinator.url).await?;
        let (one, other) = try_join!(first.load(), second.load())?;
        let hops: Vec<u32> = one.hops.iter().chain(&other.hops).map(|hop| hop.index).collect();
        ensure!(hops == [0, 1] && one.epoch == other.epoch, "an unexpected plan: {one:?}, {other:?}");
        let gate = Gate::Run { epoch: one.epoch, step: None };
        let (payload, micro_batches) = (shape.payload()?, shape.micro_batches);
        Ok(Self { pid, first, second, payload, gate, micro_batches })
    }

    pub async fn through_forwarder(forwarder: &Forwarder, shape: &Shape) -> Result<Self> {
        let first = Peer::connect_to_forwarder(&forwarder.url).await?;
        let second = Peer::connect_to_forwarder(&forwarder.url).await?;
        let (payload, micro_batches) = (shape.payload()?, shape.micro_batches);
        let gate = Gate::Open { steps: 0 };
        Ok(Self { pid: forwarder.pid, first, second, payload, gate, micro_batches })
    }

    /// Ends the step before, if there was one, and gives the next once its frames may pass.
    ///
    /// By then its tokens are here too: what is measured is the relay alone.
    pub async fn next_step(&mut self) -> Result<Step> {
        let (epoch, step) = match &mut self.gate {
            Gate::Open { steps } => {
                *steps += 1;
                (1, *steps)
            }
            Gate::Run { epoch, step } => {
                if let Some(done) = *step {
                    self.first.report(*epoch, done, 0).await?;
                    self.second.report(*epoch, done, self.micro_batches).await?;
                }
                let next = step.map_or(0, |done| done + 1);
                let wanted = |to: &Address| (to.epoch, to.step) == (*epoch, next);
                try_join!(
                    batches(&mut self.first.stream, self.micro_batches, wanted),
                    batches(&mut self.second.stream, self.micro_batches, wanted),
                )?;
                *step = Some(next);
                (*epoch, next)
            }
        };
        Ok(Step { epoch, step, micro_batches: self.micro_batches, payload: self.payload.clone() })
    }
}

/// Waits for a step's tokens or targets.
async fn batches(stream: &mut Stream, count: u32, wanted: impl Fn(&Address) -> bool) -> Result<()> {
    for _ in 0..count {
        let batch = |message| match message {
            ToWorker::Down(Down::Tokens(Tokens(batch)) | Down::Targets(Targets(batch))) => {
                wanted(&batch.to).then_some(())
            }
            _ => None,
        };
        stream.find("the step's tokens", batch).await?;
    }
    Ok(())
}
