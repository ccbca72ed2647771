//! The fields of `run.toml` that block mode alone has: `[blocks]` and `[rounds]`.

use protocol::limits::LOCAL_STEPS;

use super::{
    choices::{AggregatorName, DeltaName, ModeName, MomentsName, OuterName},
    kind::{Choice, Number, Optional, Whole, WordOr},
    run_kinds::MOST_LAYERS,
    section::section,
};
use control::block::evaluation::Evaluator;

section! {
    /// The model, whose `model.layers` are shared evenly among blocks, and the noise that each block learns to remove.
    "blocks", ModeName::BLOCKS => pub struct BlocksConfig() {
        /// B; divides `model.layers`.
        count: u32 = 3 => Whole(1..=MOST_LAYERS);
        /// Least standard deviation sigma of the noise. Read docs/blocks.md before going below 1.
        sigma_min: f64 = 1.0 => Number::above(0.0, 1e9);
        /// Largest sigma.
        sigma_max: f64 = 10.0 => Number::above(0.0, 1e9);
        /// Mean of ln(sigma), by which the range is cut into blocks.
        p_mean: f64 = -1.2 => Number::within(-1e3, 1e3);
        /// Standard deviation of ln(sigma).
        p_std: f64 = 1.2 => Number::above(0.0, 1e3);
        /// How far a block's training range reaches into its neighbours': by the factor (hi / lo)^gamma at either end.
        gamma: f64 = 0.1 => Number::within(0.0, 1e3);
    }
}

section! {
    /// How blocks are trained and their replicas averaged.
    "rounds", ModeName::BLOCKS => pub struct RoundsConfig(blocks: &BlocksConfig) {
        /// H, local steps of a worker in a round.
        local_steps: u32 = 20 => Whole(1..=LOCAL_STEPS as u32);
        /// Measured workers to wait for before the first round.
        start_with: u32 = blocks.count, "`blocks.count`" => Whole(1..=10_000);
        /// Encoding of what workers send back; "topk" sends the largest numbers and keeps the rest for the next round.
        delta: DeltaName = DeltaName::F32 => Choice(&[
            ("f32", DeltaName::F32),
            ("f16", DeltaName::F16),
            ("int8", DeltaName::Int8),
            ("topk", DeltaName::TopK),
        ]);
        /// Share of the numbers that `delta = "topk"` sends, in thousandths.
        top_k_per_mille: u32 = 50 => Whole(1..=1000);
        /// How the deltas of a block's replicas become one; docs/blocks.md says what each holds off.
        aggregator: AggregatorName = AggregatorName::Mean => Choice(&[
            ("mean", AggregatorName::Mean),
            ("clip_to_median_norm", AggregatorName::ClipToMedianNorm),
            ("trimmed_mean", AggregatorName::TrimmedMean),
            ("median", AggregatorName::Median),
            ("centred_clip", AggregatorName::CentredClip),
        ]);
        /// Deltas that "trimmed_mean" drops at either end.
        trim: u32 = 1 => Whole(0..=10_000);
        /// Radius of "centred_clip", an L2 norm of a delta.
        clip_radius: Option<f64> = None, "the median norm of the deltas" => Optional(Number::POSITIVE);
        /// Iterations of "centred_clip".
        clip_iterations: u32 = 3 => Whole(1..=100);
        /// What the averaged delta is for: it is added to the weights, or is the gradient of SGD with Nesterov momentum.
        outer: OuterName = OuterName::Mean => Choice(&[("mean", OuterName::Mean), ("nesterov", OuterName::Nesterov)]);
        /// Rate of `outer = "nesterov"`.
        outer_learning_rate: f64 = 0.7 => Number::POSITIVE;
        /// Momentum of `outer = "nesterov"`.
        outer_momentum: f64 = 0.9 => Number::below(0.0, 1.0);
        /// Seconds after which a round closes; "adaptive" learns them from arrivals.
        deadline: Option<f64> = None => WordOr("adaptive", Number::seconds(0.1, 86_400.0));
        /// Of an adaptive deadline: the share of the replicas that should arrive in time.
        target_participation: f64 = 0.86 => Number::within(0.0, 1.0);
        /// Of an adaptive deadline: the share below which a round goes on past it, up to four times as long.
        least_participation: f64 = 0.6 => Number::within(0.0, 1.0);
        /// Of an adaptive deadline: no round goes on for longer than this.
        longest_seconds: f64 = 600.0 => Number::seconds(0.01, 86_400.0);
        /// AdamW's moments between two rounds: they stay on the worker while it has the block, or every round begins
        /// without, so that any work can be done again from the published weights alone.
        moments: MomentsName = MomentsName::Kept => Choice(&[
            ("kept", MomentsName::Kept),
            ("fresh", MomentsName::Fresh),
        ]);
        /// A delta may be this many times as long as the typical one of its block; 0: any length.
        norm_limit: f64 = 4.0 => Number::NOT_NEGATIVE;
        /// Who computes the scores: the coordinator on its processor, or workers that have nothing else to do.
        evaluate_by: Evaluator = Evaluator::Coordinator => Choice(&[
            ("coordinator", Evaluator::Coordinator),
            ("workers", Evaluator::Workers),
        ]);
        /// K, draws of the scores with several.
        draws: u32 = 8 => Whole(1..=1000);
    }
}
