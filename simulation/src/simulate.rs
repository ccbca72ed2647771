//! A run of block mode with virtual workers of a regime.

use std::{collections::BTreeMap, time::Duration};

use control::{
    Record,
    block::{deadline::DeadlinePolicy, evaluation::Evaluator},
    record::Traffic,
};
use engine::{
    aggregation::server::Server,
    denoiser::{layers_per_block, shapes},
};
use protocol::{
    evaluation::Scores,
    view::{CurvePoint, Phase},
};

use crate::{
    block::{BlockRuntime, BlockSetup, stand_in, unchecked},
    error::SimulationError,
    harness::{Disk, Harness},
    hostile::{Behaviour, Hostile},
    luck::Luck,
    network::{Network, Weather},
    regime::{Regime, Speed},
    stand_in::{StandIn, delta_bytes},
    virtual_worker::WorkerSpec,
    windows::Windows,
};

/// Who takes part, and how.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// What workers and links are like.
    pub regime: Regime,
    /// How many there are.
    pub workers: u32,
    /// Of the run (weights, data, noise) and of everything the regime draws.
    pub seed: u64,
    /// Where a round's deadline comes from; None: the regime's fixed one.
    pub deadline: Option<DeadlinePolicy>,
    /// How the first workers behave; the others are honest.
    pub hostile: Vec<Behaviour>,
    /// Whether the aggregation server turns away copies, zeros, and deltas of an absurd size or length.
    pub checks: bool,
}

impl Plan {
    /// Honest workers under the regime's own deadline.
    pub fn new(regime: Regime, workers: u32, seed: u64) -> Plan {
        Plan { regime, workers, seed, deadline: None, hostile: vec![], checks: true }
    }
}

/// What a simulated run came to.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// Mean over the rounds of accepted deltas over assigned replicas.
    pub participation: f64,
    /// Virtual seconds of the whole run, with joining.
    pub seconds: f64,
    /// Virtual seconds of a round on average.
    pub round_seconds: f64,
    /// Bytes down per accepted delta, without what joining costs.
    pub bytes_down: f64,
    /// Bytes up per accepted delta, without what joining costs.
    pub bytes_up: f64,
    /// Local steps of all accepted deltas.
    pub local_steps: u64,
    /// Of the last weights.
    pub scores: Option<Scores>,
    /// The learning curve.
    pub curve: Vec<CurvePoint>,
    /// Deltas and workers turned away, by the name of the reason.
    pub refusals: BTreeMap<String, u64>,
    /// Hash of the last weights.
    pub state: String,
    /// Everything that the event log of a real run would hold.
    pub records: Vec<Record>,
}

/// Runs `plan` with the settings of `setup`, whose seed and deadline give way to the plan's. `windows` must be drawn by
/// the plan's seed; `told` hears the rounds done.
///
/// # Errors
/// [`SimulationError`]: a run that is not in block mode, no workers, or a run that cannot go on.
pub fn run<W: Windows>(
    setup: &BlockSetup,
    windows: W,
    plan: &Plan,
    told: impl FnMut(u64),
) -> Result<Outcome, SimulationError> {
    let speeds = plan.regime.speeds(plan.workers, plan.seed);
    let mut setup = setup.clone();
    setup.settings.seed = plan.seed;
    if !plan.checks {
        setup.rules = unchecked(setup.rules);
    }
    play(setup, windows, plan, &speeds, None, told)
}

/// The same with workers of these speeds, and with the tiny model of a stand-in where one is given.
pub(crate) fn play<W: Windows>(
    mut setup: BlockSetup,
    windows: W,
    plan: &Plan,
    speeds: &[Speed],
    stand_in: Option<StandIn>,
    mut told: impl FnMut(u64),
) -> Result<Outcome, SimulationError> {
    let layers_per_block = setup.rounds.layers_per_block;
    let workers = speeds.len() as u32;
    if workers == 0 {
        return Err(SimulationError::NoWorkers);
    }
    let Some(blocks) = setup.settings.run.blocks else { return Err(SimulationError::NotBlockMode) };
    let settings = &mut setup.settings;
    settings.start_with = workers;
    settings.max_workers = settings.max_workers.max(workers);
    // A worker that is not in a round would measure in no time.
    setup.rounds.evaluator = Evaluator::Coordinator;
    let bytes = bytes_of_a_round(&setup, stand_in.as_ref())?;
    let typical = plan.regime.median.round_seconds(bytes, setup.rounds.local_steps, 1.0, 1.0);
    let fixed = DeadlinePolicy::Fixed { seconds: plan.regime.deadline * typical };
    setup.rounds.deadline = plan.deadline.unwrap_or(fixed);
    let local_steps = u64::from(setup.rounds.local_steps);

    let mut network = Network::new(plan.seed, Weather::default());
    let dry = stand_in.is_some();
    network.stand_in = stand_in;
    let mut runtime = BlockRuntime::new(setup, windows);
    if dry {
        runtime = runtime.dry();
    }
    runtime.luck = Some(Luck::new(plan.regime, plan.seed, speeds, bytes));
    runtime.hostile = Hostile::new(plan.seed, blocks.delta, &plan.hostile);
    let mut harness = Harness::new(runtime, network, Disk::Instant)?;
    for (number, speed) in speeds.iter().enumerate() {
        let name = format!("worker {number}");
        harness.join(WorkerSpec::of_step_seconds(
            &name,
            speed.link(),
            speed.step_seconds,
            layers_per_block,
        ))?;
    }
    let mut round = 0;
    while !harness.step(Duration::MAX)? {
        while round < harness.decided().published().round {
            round += 1;
            told(round);
        }
    }
    outcome(harness, local_steps)
}

fn outcome<W: Windows>(
    harness: Harness<BlockRuntime<W>>,
    local_steps: u64,
) -> Result<Outcome, SimulationError> {
    let now = harness.now();
    let view = harness.decided().view(now);
    if view.phase != Phase::Finished {
        return Err(SimulationError::Stopped(view.reason));
    }
    let (mut seconds, mut rounds, mut accepted) = (0.0, 0u64, 0u64);
    let mut traffic = Traffic::default();
    for record in harness.records() {
        match record {
            Record::RoundClosed { seconds: of_round, accepted: of, .. } => {
                seconds += of_round;
                rounds += 1;
                accepted += of;
            }
            Record::DeltaAccepted { traffic: of, .. } => {
                traffic.down += of.down;
                traffic.up += of.up;
            }
            _ => {}
        }
    }
    let each = |bytes: u64| bytes as f64 / accepted.max(1) as f64;
    Ok(Outcome {
        participation: harness.decided().mean_participation().unwrap_or(0.0),
        seconds: now.as_secs_f64(),
        round_seconds: seconds / rounds.max(1) as f64,
        bytes_down: each(traffic.down),
        bytes_up: each(traffic.up),
        local_steps: accepted * local_steps,
        scores: view.rounds.and_then(|rounds| rounds.evaluation).map(|(_, scores)| scores),
        curve: harness.decided().curve().to_vec(),
        refusals: view.refusals,
        state: harness.decided().published().state().to_string(),
        records: harness.into_records(),
    })
}

/// Bytes of what goes down and up in a round, but for a few of the frames' headers.
fn bytes_of_a_round(setup: &BlockSetup, stand_in: Option<&StandIn>) -> Result<[u64; 2], SimulationError> {
    let steps = u64::from(setup.rounds.local_steps);
    if let Some(stand_in) = stand_in {
        return Ok(stand_in.bytes_of_a_round(steps));
    }
    let run = &setup.settings.run;
    let Some(blocks) = run.blocks else { return Err(SimulationError::NotBlockMode) };
    let files = Server::draw(run, setup.settings.seed, setup.rules)?.files()?;
    let file = files.blocks.first().map_or(0, Vec::len) + files.table.len();
    let windows = 4 * steps * u64::from(run.sequences) * u64::from(run.context + 1);
    let layers = layers_per_block(&run.model, &blocks).unwrap_or(0);
    let shapes = shapes::of_replica(&run.model, layers, 0);
    let lengths = shapes.iter().map(|shape| shape.len() as u32).collect();
    Ok([file as u64 + windows, delta_bytes(blocks.delta, lengths)])
}

/// A setup whose model is the tiny one of the stand-in that is given with it.
pub(crate) fn dry(setup: &BlockSetup) -> Result<(BlockSetup, StandIn), SimulationError> {
    let mut setup = setup.clone();
    if setup.settings.run.blocks.is_none() {
        return Err(SimulationError::NotBlockMode);
    }
    let stand_in = stand_in(&mut setup)?;
    Ok((setup, stand_in))
}
