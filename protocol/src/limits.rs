//! How long the texts and lists of a message may be.
//!
//! A header that keeps these limits fits into [`crate::frame::MAX_HEADER`] in every message.

use crate::{
    evaluation::Scores,
    message::{
        DeltaReady, Evaluate, Evaluated, Fault, Hello, Judged, Message, Probe, Profile, Round, StepReport,
        Welcome,
    },
    refusal::Refusal,
    spec::{Assignment, RunSpec, WeightSource},
};

/// Characters of a worker's or a run's name.
pub const NAME: usize = 64;
/// Characters of a build's, a device's or a message's description, for people to read.
pub const LABEL: usize = 128;
/// Characters of a sentence: the detail of a fault or refusal, the reason of leaving.
pub const SENTENCE: usize = 512;
/// Characters of a bearer token.
pub const TOKEN: usize = 256;
/// Losses in a step report, one per micro-batch.
pub const LOSSES: usize = 4096;
/// Bytes of padding in a probe or its answer.
pub const PROBE: usize = 4 << 20;
/// Hops of one assignment.
pub const HOPS: usize = 1024;
/// Blobs of one assignment or evaluation.
pub const BLOBS: usize = 1024;
/// Local steps of a worker in one round.
pub const LOCAL_STEPS: usize = 4096;
/// Blocks of a model, each with its scores.
pub const BLOCKS: usize = 1024;

/// A text or list of a message is too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{field} has {actual} {unit}: at most {limit} are allowed")]
pub struct LimitError {
    /// `Message.field`.
    pub field: &'static str,
    pub actual: usize,
    pub limit: usize,
    /// What is counted: characters, entries or bytes.
    pub unit: &'static str,
}

impl Message {
    /// Checks every text and list against the limits of this module.
    ///
    /// # Errors
    /// The first field that is too long.
    pub fn check_limits(&self) -> Result<(), LimitError> {
        // Without a wildcard and with all fields named, so that what is added must be decided on here.
        match self {
            Message::Hello(Hello { protocol: _, build, kind: _, name }) => {
                text("Hello.build", build, LABEL)?;
                text("Hello.name", name, NAME)
            }
            Message::Profile(Profile {
                backend: _,
                device,
                threads: _,
                memory_bytes: _,
                layer: _,
                embedding: _,
                head_seconds: _,
                link: _,
            }) => text("Profile.device", device, LABEL),
            Message::StepReport(StepReport {
                epoch: _,
                step: _,
                squared_norm: _,
                losses,
                timings: _,
                vitals: _,
            }) => list("StepReport.losses", losses, LOSSES),
            Message::Leaving { reason } => text("Leaving.reason", reason, SENTENCE),
            Message::Fault(Fault { epoch: _, kind: _, detail }) => text("Fault.detail", detail, SENTENCE),
            Message::Welcome(Welcome { worker: _, token, run, heartbeat_ms: _, lease_ms: _ }) => {
                text("Welcome.token", token, TOKEN)?;
                let RunSpec {
                    name,
                    model: _,
                    optimizer: _,
                    sequences: _,
                    context: _,
                    micro_batches: _,
                    recompute: _,
                    wire: _,
                    moments: _,
                    blocks: _,
                } = run;
                text("Welcome.run.name", name, NAME)
            }
            Message::Assign(Assignment {
                epoch: _,
                hops,
                hop_count: _,
                first_step: _,
                micro_batches: _,
                window: _,
                weights,
            }) => {
                list("Assign.hops", hops, HOPS)?;
                match weights {
                    WeightSource::Seed(_) => Ok(()),
                    WeightSource::Snapshot(blobs) => list("Assign.weights", blobs, BLOBS),
                }
            }
            Message::Refuse(refusal) => refuse(refusal),
            // Their one list, the shape, is for `TensorMeta::check`.
            Message::Activation(_) | Message::Gradient(_) | Message::Tokens(_) | Message::Targets(_) => {
                Ok(())
            }
            Message::Probe(Probe { number: _, padding, answer }) => {
                at_most("Probe.padding", *padding as usize, PROBE, "bytes")?;
                at_most("Probe.answer", *answer as usize, PROBE, "bytes")
            }
            Message::ProbeAnswer { number: _, padding } => {
                at_most("ProbeAnswer.padding", *padding as usize, PROBE, "bytes")
            }
            Message::Round(Round {
                round: _,
                block: _,
                base: _,
                table: _,
                seed: _,
                learning_rates,
                fresh: _,
                deadline_ms: _,
            }) => list("Round.learning_rates", learning_rates, LOCAL_STEPS),
            Message::DeltaReady(DeltaReady {
                round: _,
                block: _,
                blob: _,
                loss: _,
                cross_entropy: _,
                timings: _,
                vitals: _,
            }) => Ok(()),
            Message::Judged(Judged { round: _, refused }) => match refused {
                Some(words) => text("Judged.refused", words, SENTENCE),
                None => Ok(()),
            },
            Message::Evaluate(Evaluate { round: _, batch: _, blocks, table: _, seed: _, draws: _ }) => {
                list("Evaluate.blocks", blocks, BLOBS)
            }
            Message::Evaluated(Evaluated { round: _, batch: _, scores }) => {
                let Scores {
                    one_draw: _,
                    draws: _,
                    many_draws: _,
                    from_zero: _,
                    chain,
                    alone,
                    local,
                    scrambled,
                } = scores;
                list("Evaluated.chain", chain, BLOCKS)?;
                list("Evaluated.alone", alone, BLOCKS)?;
                list("Evaluated.local", local, BLOCKS)?;
                list("Evaluated.scrambled", scrambled, BLOCKS)
            }
            Message::Ready { epoch: _ }
            | Message::ValidationReport(_)
            | Message::SnapshotReady(_)
            | Message::Heartbeat
            | Message::Pausing
            | Message::Benchmark
            | Message::Apply(_)
            | Message::Revoke { epoch: _ }
            | Message::SnapshotKept { steps_done: _ }
            | Message::Drain { reason: _ } => Ok(()),
        }
    }
}

fn refuse(refusal: &Refusal) -> Result<(), LimitError> {
    match refusal {
        Refusal::Malformed { detail } | Refusal::BadProfile { detail } => {
            text("Refuse.detail", detail, SENTENCE)
        }
        Refusal::Unexpected { message, detail } | Refusal::NotInPlan { message, detail } => {
            text("Refuse.message", message, LABEL)?;
            text("Refuse.detail", detail, SENTENCE)
        }
        Refusal::Version { theirs: _, ours: _ }
        | Refusal::Oversized { bytes: _, limit: _ }
        | Refusal::Full { workers: _ }
        | Refusal::RunOver
        | Refusal::Removed
        | Refusal::LeaseEnded { seconds: _ } => Ok(()),
    }
}

/// Cuts a text to `limit` characters; what is cut off shows as an ellipsis. For texts from outside, such as
/// a driver's error, on their way into a message.
pub fn shorten(text: &str, limit: usize) -> String {
    if text.chars().nth(limit).is_none() {
        return text.to_owned();
    }
    text.chars().take(limit.saturating_sub(1)).chain(std::iter::once('…')).take(limit).collect()
}

fn text(field: &'static str, text: &str, limit: usize) -> Result<(), LimitError> {
    // A character takes at least one byte: most texts need no counting.
    if text.len() <= limit {
        return Ok(());
    }
    at_most(field, text.chars().count(), limit, "characters")
}

fn list<T>(field: &'static str, list: &[T], limit: usize) -> Result<(), LimitError> {
    at_most(field, list.len(), limit, "entries")
}

fn at_most(field: &'static str, actual: usize, limit: usize, unit: &'static str) -> Result<(), LimitError> {
    if actual <= limit { Ok(()) } else { Err(LimitError { field, actual, limit, unit }) }
}
