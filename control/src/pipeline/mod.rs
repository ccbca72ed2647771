//! Pipeline mode: a plan gives each worker a stage, and one optimizer step follows the other.
//!
//! ```text
//! mod.rs        state, and which event goes where      boundary.rs  what comes between two steps
//! planning.rs   plans made, replaced and discarded     reports.rs   what stages report; closing a step
//! snapshots.rs  parts collected, manifests written     stall.rs     who is replaced when nothing comes
//! step.rs       one step in progress                   snapshot.rs  manifests
//! serving.rs    texts through the stages
//! relay.rs      which frame may go to whom             plan/        who gets which layers
//! view.rs       what the pages show
//! ```
//!
//! A run waits for workers, makes a plan, has the stages loaded, and then takes one step after the other. Between two
//! steps it may hold, end, or change the plan. When a worker of the plan vanishes it goes back to the last snapshot with
//! whoever is left.

mod boundary;
pub mod plan;
mod planning;
mod relay;
mod reports;
mod serving;
mod snapshot;
mod snapshots;
mod stall;
mod step;
mod view;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use protocol::{
    message::{Address, Fault, FaultKind, Traversal, Up},
    refusal::Refusal,
    view::{CurvePoint, RunView},
    worker_id::WorkerId,
};

use crate::{
    core::{RunCore, Standing, Turn, unexpected},
    curve::Curve,
    event::Command,
    run::{Mode, Run},
    settings::Settings,
};
use plan::{Plan, Stages};
pub use relay::{Relay, Verdict};
pub use snapshot::{Manifest, SnapshotPart};
use snapshots::Writing;
use step::StepInProgress;

/// What happens in pipeline mode alone.
#[derive(Debug, Clone)]
pub enum Event {
    /// The manifest of this snapshot is on disk.
    Committed {
        /// Steps its weights have seen.
        steps_done: u64,
        /// Hash of all its weights and moments.
        state: String,
    },
    /// It could not be written.
    CommitFailed {
        /// Steps its weights have seen.
        steps_done: u64,
        /// Why not, for people.
        why: String,
        /// The worker whose part is not what it should be; None where it was the disk.
        culprit: Option<WorkerId>,
    },
    /// Answers [`Action::FindOwing`].
    Owing(Option<WorkerId>),
    /// New tokens of texts are to go through the stages once: the traversal of this number. The one before is not
    /// wanted any more.
    Traverse {
        /// Higher than that of any before.
        number: u64,
    },
    /// [`Action::Decode`] named a traversal that nobody wants any more.
    TraversalGone {
        /// Which.
        number: u64,
    },
    /// These texts have ended.
    TextsEnded(Vec<u64>),
}

/// Which half of a batch of token windows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Half {
    /// Ids for the embedding.
    Inputs,
    /// The ids that follow them, for the loss.
    Targets,
}

/// What is to be done in pipeline mode alone.
#[derive(Debug, Clone)]
pub enum Action {
    /// Cut the windows of this pass from the data and send them.
    SendBatch {
        /// To whom.
        worker: WorkerId,
        /// The address they carry.
        to: Address,
        /// Inputs or targets.
        half: Half,
    },
    /// From now on relayed frames are judged by this plan.
    Route(Relay),
    /// From now on frames of this step are let through.
    OpenStep {
        /// The step.
        step: u64,
    },
    /// All parts are stored: verify them, write the manifest, then say [`Event::Committed`].
    Commit(Manifest),
    /// The run would go back to this snapshot from now on: older ones may be forgotten.
    Prune {
        /// Steps its weights have seen.
        accepted: u64,
    },
    /// Nothing has come for too long: ask the relay whose turn it is, then say [`Event::Owing`].
    FindOwing,
    /// Send the rows of a traversal, as they are after the hop before, to the holder of this hop.
    Decode {
        /// To whom.
        worker: WorkerId,
        /// What the message says of itself.
        of: Traversal,
        /// It is the hop with the head.
        last: bool,
    },
    /// The last hop of a traversal has answered.
    Traversed {
        /// Which.
        number: u64,
    },
    /// The plan has ended: a traversal under way comes to nothing, and all caches are lost.
    CachesLost,
    /// Whether texts can be asked for from now on.
    Texts(Asking),
}

/// Whether the workers can be asked for texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asking {
    /// The stages hold the weights of this step.
    Step(u64),
    /// Nobody holds all of the model at the moment.
    Nobody,
    /// The run has ended.
    Over,
}

/// What the plan in force is doing.
#[derive(Debug, Clone)]
enum Activity {
    /// Stages load their weights; these are ready.
    Loading(BTreeSet<WorkerId>),
    /// A step is open.
    Stepping(StepInProgress),
    /// Between two steps.
    Holding,
}

#[derive(Debug, Clone)]
struct InForce {
    plan: Plan,
    /// Everybody's pace when it was made.
    paces: BTreeMap<WorkerId, f64>,
    /// Every frame is verified on its way.
    verified: bool,
    /// It has done a step.
    has_stepped: bool,
    activity: Activity,
}

/// The state of pipeline mode.
#[derive(Debug, Clone)]
pub struct Pipeline {
    stages: Stages,
    epoch: u64,
    in_force: Option<InForce>,
    /// Optimizer steps the weights have seen.
    steps_done: u64,
    snapshot: Option<Manifest>,
    collecting: Option<snapshot::Collecting>,
    /// A complete snapshot whose manifest is being written.
    writing: Option<Writing>,
    /// Why the newest snapshot could not be kept, for people.
    snapshot_fault: Option<String>,
    /// Why a new plan is to be made at the next boundary.
    replan: Option<String>,
    /// Whether something has changed since the last attempt at a first plan.
    try_again: bool,
    /// Why no plan could be made of the workers there are.
    impossible: Option<String>,
    /// When something last came of the plan in force: a stage loaded, a report, a part of a snapshot.
    progressed: Duration,
    /// The relay has been asked whose turn it is.
    finding_owing: bool,
    /// Frames were broken on their way: the next plan has all of them verified.
    verify_all: bool,
    /// Steps in a row after which another plan would have been clearly better.
    drifting: u32,
    /// The newest point, held back until the held-out split has been measured.
    pending_point: Option<CurvePoint>,
    validation_loss: Option<f64>,
    step_seconds: Vec<f64>,
    efficiency: Option<f64>,
    balance: Option<f64>,
    /// The last discard of work, for people.
    last_discard: Option<String>,
    texts: serving::Texts,
    /// The last plan that has ended before its time.
    served: Option<Plan>,
}

/// A run of pipeline mode.
pub type PipelineRun = Run<Pipeline>;

impl PipelineRun {
    /// A new run, or with a manifest one that goes on from there; `curve` is what an earlier process saw.
    pub fn new(mut settings: Settings, stages: Stages, resume: Option<Manifest>, curve: Curve) -> Self {
        if let Some(manifest) = &resume {
            settings.run.micro_batches = manifest.micro_batches;
        }
        let mut curve = curve;
        curve.cut_after(resume.as_ref().map_or(0, |manifest| manifest.steps_done));
        let pipeline = Pipeline {
            stages,
            epoch: resume.as_ref().map_or(0, |manifest| manifest.epoch),
            in_force: None,
            steps_done: resume.as_ref().map_or(0, |manifest| manifest.steps_done),
            snapshot: resume,
            collecting: None,
            writing: None,
            snapshot_fault: None,
            replan: None,
            try_again: true,
            impossible: None,
            progressed: Duration::ZERO,
            finding_owing: false,
            verify_all: false,
            drifting: 0,
            pending_point: None,
            validation_loss: curve.points().iter().rev().find_map(|point| point.validation_loss),
            step_seconds: vec![],
            efficiency: None,
            balance: None,
            last_discard: None,
            texts: serving::Texts::default(),
            served: None,
        };
        Run::with(settings, false, curve, pipeline)
    }

    /// M, micro-batches in a step; 0 before the first plan of a run that has it chosen.
    pub fn micro_batches(&self) -> u32 {
        self.core().settings.run.micro_batches
    }

    /// The newest snapshot that counts.
    pub fn snapshot(&self) -> Option<&Manifest> {
        self.mode().snapshot.as_ref()
    }
}

impl Mode for Pipeline {
    type Event = Event;
    type Action = Action;

    fn said(&mut self, turn: &mut Turn<'_, Action>, worker: WorkerId, message: Up) -> Result<(), Refusal> {
        match message {
            Up::Ready(ready) => self.ready(turn, worker, ready.epoch),
            Up::StepReport(report) => self.step_report(turn, worker, report),
            Up::ValidationReport(report) => self.validation_report(turn, worker, &report),
            Up::SnapshotReady(part) => {
                self.snapshot_part(turn, worker, &part);
                Ok(())
            }
            Up::Decoded(decoded) => self.decoded(turn, worker, &decoded),
            other => Err(unexpected(&other)),
        }
    }

    fn profiled(&mut self, turn: &mut Turn<'_, Action>, worker: WorkerId) {
        self.try_again = true;
        if self.better_by(turn, planning::REPLAN_GAIN).is_some() {
            self.replan = Some(format!("{worker} can take part of the work"));
        }
    }

    fn failed(&mut self, turn: &mut Turn<'_, Action>, worker: WorkerId, fault: &Fault) -> Standing {
        if fault.during < self.epoch {
            return Standing::Stale;
        }
        let held = self.in_force.as_ref().filter(|in_force| in_force.plan.stage(worker).is_some());
        let Some(in_force) = held.filter(|_| fault.during == self.epoch) else { return Standing::Unfounded };
        let verified = in_force.verified;
        // Tokens are all that the only stage gets from others.
        let alone = in_force.plan.workers().len() == 1 && fault.kind == FaultKind::NotFinite;
        let detail = &fault.detail;
        match fault.kind {
            FaultKind::BadTensor | FaultKind::NotFinite => {
                let what =
                    if fault.kind == FaultKind::BadTensor { "a broken tensor" } else { "NaN or infinity" };
                self.discard_plan(turn, format!("{worker} met {what}: {detail}"));
                self.verify_all = true;
                // With every frame read on its way, whoever sends one that is broken or not finite is refused for it: what
                // was met all the same was made by the worker that met it.
                if verified || alone { Standing::Counts } else { Standing::Excused }
            }
            FaultKind::Device | FaultKind::Weights => {
                self.discard_plan(turn, format!("{worker} cannot go on: {detail}"));
                Standing::Counts
            }
        }
    }

    fn left(&mut self, turn: &mut Turn<'_, Action>, worker: WorkerId, why: &str) {
        self.try_again = true;
        if self.in_force.as_ref().is_some_and(|in_force| in_force.plan.stage(worker).is_some()) {
            self.discard_plan(turn, format!("{worker} left: {why}"));
        }
    }

    fn told(&mut self, turn: &mut Turn<'_, Action>, event: Event) {
        match event {
            Event::Committed { steps_done, state } => self.committed(turn, steps_done, state),
            Event::CommitFailed { steps_done, why, culprit } => {
                self.commit_failed(turn, steps_done, why, culprit);
            }
            Event::Owing(worker) => self.owing(turn, worker),
            Event::Traverse { number } => self.traversal_wanted(number),
            Event::TraversalGone { number } => self.traversal_gone(number),
            Event::TextsEnded(texts) => self.texts_ended(turn, &texts),
        }
    }

    fn forgive(&mut self, time: Duration) {
        self.progressed = self.progressed.saturating_add(time);
        if let Some(InForce { activity: Activity::Stepping(step), .. }) = &mut self.in_force {
            step.opened = step.opened.saturating_add(time);
        }
    }

    fn tick(&mut self, turn: &mut Turn<'_, Action>) {
        self.try_again = true;
        self.measure_spares(turn);
        self.write_again(turn);
        self.look_for_stall(turn);
        self.look_for_silent_hop(turn);
    }

    fn asked(&mut self, turn: &mut Turn<'_, Action>, command: Command) {
        self.try_again = true;
        let words = match command {
            Command::Pause => "pausing after this step",
            Command::Stop => "stopping after this step",
            Command::Start | Command::Remove(_) => return,
        };
        if self.in_force.is_some() {
            turn.explain(words);
        }
    }

    fn advance(&mut self, turn: &mut Turn<'_, Action>) {
        // Each pass changes the activity, ends the run, or finds that something must come first.
        while turn.core.over.is_none() {
            let goes_on = match &self.in_force {
                None => self.try_plan(turn),
                Some(InForce { plan, activity: Activity::Loading(ready), .. }) => {
                    let loaded = ready.len() == plan.stages.len();
                    if turn.core.stopping {
                        // Nothing has been done since the snapshot that is being loaded.
                        self.boundary_at_the_end(turn, false)
                    } else if loaded {
                        self.hold();
                        true
                    } else {
                        false
                    }
                }
                Some(InForce { activity: Activity::Stepping(_), .. }) => self.close_step(turn),
                Some(InForce { activity: Activity::Holding, .. }) => self.boundary(turn),
            };
            if !goes_on {
                break;
            }
        }
        self.serve(turn);
    }

    fn ended(&mut self, turn: &mut Turn<'_, Action>) {
        if let Some(point) = self.pending_point.take() {
            turn.publish(point);
        }
        self.in_force = None;
        self.texts_over(turn);
        turn.act(Action::Route(Relay::closed(self.epoch + 1)));
    }

    fn wake_at(&self, _: Duration) -> Option<Duration> {
        self.texts_wake_at()
    }

    fn view(&self, core: &RunCore, now: Duration) -> RunView {
        self.run_view(core, now)
    }
}
