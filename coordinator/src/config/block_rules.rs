//! The fields of `[blocks]` and `[rounds]`: defaults, limits, and what must fit together.

use engine::block::noise::{NoiseLaw, NoiseSchedule};
use protocol::limits::LOCAL_STEPS;
use toml::de::DeValue;

use super::{read::Reading, types::*};
use crate::rounds::evaluation::Evaluator;

pub fn blocks(reading: &mut Reading<'_>, model: &ModelConfig, mode: ModeName) -> BlocksConfig {
    let positive = |x: f64| x > 0.0;
    let blocks = BlocksConfig {
        count: reading.count("blocks.count", if mode == ModeName::Block { 3 } else { 1 }, 1..=512),
        sigma_min: reading.number("blocks.sigma_min", 1.0, positive, "above 0; 1 is usual"),
        sigma_max: reading.number("blocks.sigma_max", 10.0, positive, "above 0; 10 is usual"),
        p_mean: reading.number("blocks.p_mean", -1.2, |_| true, "; -1.2 is usual"),
        p_std: reading.number("blocks.p_std", 1.2, positive, "above 0; 1.2 is usual"),
        gamma: reading.number("blocks.gamma", 0.1, |x| x >= 0.0, "of at least 0; 0.1 is usual"),
    };
    if mode == ModeName::Pipeline {
        return blocks;
    }
    let fields = ["blocks.sigma_min", "blocks.sigma_max"];
    if reading.sound(&fields) && blocks.sigma_min >= blocks.sigma_max {
        let message = format!(
            "the range of sigma goes from {} to {}; make blocks.sigma_min smaller than blocks.sigma_max",
            blocks.sigma_min, blocks.sigma_max
        );
        reading.fault_between(&fields, message);
    } else if reading.sound(&["blocks.sigma_min", "blocks.sigma_max", "blocks.count", "blocks.gamma"]) {
        let law = NoiseLaw { mean: blocks.p_mean, deviation: blocks.p_std };
        let schedule =
            NoiseSchedule::new(law, blocks.sigma_min, blocks.sigma_max, blocks.count, blocks.gamma);
        if let Err(error) = schedule {
            reading.fault_between(&["blocks.p_mean", "blocks.p_std", "blocks.count"], error.to_string());
        }
    }
    let fields = ["blocks.count", "model.layers", "model.preset"];
    if reading.sound(&fields) && !model.layers.is_multiple_of(blocks.count) {
        let message = format!(
            "{} layers cannot be shared evenly among {} blocks; make model.layers a multiple of blocks.count",
            model.layers, blocks.count
        );
        reading.fault_between(&fields, message);
    }
    if model.tie_embeddings {
        let message = "in block mode the table is always shared; leave the field out";
        reading.fault("model.tie_embeddings", message.to_owned());
    }
    blocks
}

pub fn rounds(
    reading: &mut Reading<'_>,
    blocks: &BlocksConfig,
    session: &SessionConfig,
    mode: ModeName,
) -> RoundsConfig {
    let share = |x: f64| (0.0..=1.0).contains(&x);
    let seconds = |x: f64| (0.01..=86_400.0).contains(&x);
    let positive = |x: f64| x > 0.0;
    let rounds = RoundsConfig {
        local_steps: reading.count("rounds.local_steps", 20, 1..=LOCAL_STEPS as u32),
        start_with: reading.count("rounds.start_with", blocks.count, 1..=10_000),
        delta: reading.choice(
            "rounds.delta",
            DeltaName::F32,
            &[
                ("f32", DeltaName::F32),
                ("f16", DeltaName::F16),
                ("int8", DeltaName::Int8),
                ("topk", DeltaName::TopK),
            ],
        ),
        top_k_per_mille: reading.count("rounds.top_k_per_mille", 50, 1..=1000),
        aggregator: reading.choice(
            "rounds.aggregator",
            AggregatorName::Mean,
            &[
                ("mean", AggregatorName::Mean),
                ("clip_to_median_norm", AggregatorName::ClipToMedianNorm),
                ("trimmed_mean", AggregatorName::TrimmedMean),
                ("median", AggregatorName::Median),
                ("centred_clip", AggregatorName::CentredClip),
            ],
        ),
        trim: reading.count("rounds.trim", 1, 0..=10_000),
        clip_radius: {
            let radius = reading.number(
                "rounds.clip_radius",
                1.0,
                positive,
                "above 0; leave it out for the median length",
            );
            reading.is_written("rounds.clip_radius").then_some(radius)
        },
        clip_iterations: reading.count("rounds.clip_iterations", 3, 1..=100),
        outer: reading.choice(
            "rounds.outer",
            OuterName::Mean,
            &[("mean", OuterName::Mean), ("nesterov", OuterName::Nesterov)],
        ),
        outer_learning_rate: reading.number(
            "rounds.outer_learning_rate",
            0.7,
            positive,
            "above 0; 0.7 is usual",
        ),
        outer_momentum: reading.number(
            "rounds.outer_momentum",
            0.9,
            |x| (0.0..1.0).contains(&x),
            "from 0 to below 1; 0.9 is usual",
        ),
        deadline: reading.take("rounds.deadline", None, |value| {
            let number = match value {
                DeValue::String(s) if s == "adaptive" => return Ok(None),
                DeValue::Float(f) => f.as_str().parse().ok(),
                DeValue::Integer(i) => i.as_str().parse().ok(),
                _ => None,
            };
            number
                .filter(|number| seconds(*number))
                .map(Some)
                .ok_or_else(|| "must be \"adaptive\" or a number of seconds from 0.01 to 86400".to_owned())
        }),
        target_participation: reading.number(
            "rounds.target_participation",
            0.86,
            share,
            "from 0 to 1; 0.86 is usual",
        ),
        least_participation: reading.number(
            "rounds.least_participation",
            0.6,
            share,
            "from 0 to 1; 0.6 is usual",
        ),
        longest_seconds: reading.number(
            "rounds.longest_seconds",
            600.0,
            seconds,
            "from 0.01 to 86400: no round goes on for longer; 600 is usual",
        ),
        moments: reading.choice(
            "rounds.moments",
            MomentsName::Kept,
            &[("kept", MomentsName::Kept), ("fresh", MomentsName::Fresh)],
        ),
        norm_limit: reading.number(
            "rounds.norm_limit",
            4.0,
            |x| x >= 0.0,
            "of at least 0; 4 is usual, 0 is none",
        ),
        evaluate_by: reading.choice(
            "rounds.evaluate_by",
            Evaluator::Coordinator,
            &[("coordinator", Evaluator::Coordinator), ("workers", Evaluator::Workers)],
        ),
        draws: reading.count("rounds.draws", 8, 1..=1000),
    };
    if mode == ModeName::Pipeline {
        return rounds;
    }
    let fields = ["rounds.start_with", "blocks.count"];
    if reading.sound(&fields) && rounds.start_with < blocks.count {
        let message = format!(
            "{} worker{} cannot place {} blocks at once; wait for at least as many, or lower blocks.count",
            rounds.start_with,
            if rounds.start_with == 1 { "" } else { "s" },
            blocks.count
        );
        reading.fault_between(&fields, message);
    }
    let fields = ["rounds.start_with", "blocks.count", "session.max_workers"];
    if reading.sound(&fields) && rounds.start_with > session.max_workers {
        let message = format!(
            "the run waits for {} workers but lets in {}; raise session.max_workers, or wait for fewer",
            rounds.start_with, session.max_workers
        );
        reading.fault_between(&fields, message);
    }
    let fields = ["rounds.least_participation", "rounds.target_participation"];
    if reading.sound(&fields) && rounds.least_participation > rounds.target_participation {
        let message = format!(
            "a round would go on until {} are in, more than the target of {}; lower rounds.least_participation",
            rounds.least_participation, rounds.target_participation
        );
        reading.fault_between(&fields, message);
    }
    let fields = ["rounds.longest_seconds", "session.lease_seconds"];
    if reading.sound(&fields) && rounds.deadline.is_none() && rounds.longest_seconds <= session.lease_seconds
    {
        let message = format!(
            "a round would end after {} s, before a lease of {} s does; make it several leases long",
            rounds.longest_seconds, session.lease_seconds
        );
        reading.fault_between(&fields, message);
    }
    rounds
}
