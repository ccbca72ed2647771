//! What must hold between the fields of `run.toml` in block mode.

use engine::denoiser::noise::{NoiseLaw, NoiseSchedule};
use protocol::tensor::Encoding;

use super::{
    read::Reading,
    rules_of_both::{TooLarge, beyond_frame, workers_are_let_in},
    run_config::RunConfig,
};

/// Notes whatever does not fit together in block mode.
pub(super) fn check(reading: &mut Reading<'_>, config: &RunConfig) {
    noise_has_a_range(reading, config);
    noise_is_cut_into_blocks(reading, config);
    blocks_share_layers(reading, config);
    table_is_shared_anyway(reading, config);
    blocks_have_workers(reading, config);
    workers_are_let_in(reading, "rounds.start_with", "blocks.count", config);
    floor_below_target(reading, config);
    lease_within_round(reading, config);
    windows_fit_frame(reading, config);
}

fn noise_has_a_range(reading: &mut Reading<'_>, config: &RunConfig) {
    let (low, high) = (config.blocks.sigma_min, config.blocks.sigma_max);
    reading.rule(&["blocks.sigma_min", "blocks.sigma_max"], || {
        (low >= high).then(|| {
            format!(
                "the range of sigma goes from {low} to {high}; make blocks.sigma_min smaller than blocks.sigma_max"
            )
        })
    });
}

fn noise_is_cut_into_blocks(reading: &mut Reading<'_>, config: &RunConfig) {
    let blocks = &config.blocks;
    let fields = [
        "blocks.p_mean",
        "blocks.p_std",
        "blocks.count",
        "blocks.sigma_min",
        "blocks.sigma_max",
        "blocks.gamma",
    ];
    reading.rule(&fields, || {
        let law = NoiseLaw { mean: blocks.p_mean, deviation: blocks.p_std };
        let schedule =
            NoiseSchedule::new(law, blocks.sigma_min, blocks.sigma_max, blocks.count, blocks.gamma);
        schedule.err().map(|error| error.to_string())
    });
}

fn blocks_share_layers(reading: &mut Reading<'_>, config: &RunConfig) {
    let (layers, blocks) = (config.model.layers, config.blocks.count);
    reading.rule(&["blocks.count", "model.layers", "model.preset"], || {
        (!layers.is_multiple_of(blocks)).then(|| {
            format!(
                "{layers} layers cannot be shared evenly among {blocks} blocks; make model.layers a multiple of \
                 blocks.count"
            )
        })
    });
}

fn table_is_shared_anyway(reading: &mut Reading<'_>, config: &RunConfig) {
    reading.rule(&["model.tie_embeddings"], || {
        let message = "in block mode the table is always shared; leave the field out";
        config.model.tie_embeddings.then(|| message.to_owned())
    });
}

fn blocks_have_workers(reading: &mut Reading<'_>, config: &RunConfig) {
    let (workers, blocks) = (config.rounds.start_with, config.blocks.count);
    let plural = if workers == 1 { "" } else { "s" };
    reading.rule(&["rounds.start_with", "blocks.count"], || {
        (workers < blocks).then(|| {
            format!(
                "{workers} worker{plural} cannot place {blocks} blocks at once; wait for at least as many, or lower \
                 blocks.count"
            )
        })
    });
}

fn floor_below_target(reading: &mut Reading<'_>, config: &RunConfig) {
    let (least, target) = (config.rounds.least_participation, config.rounds.target_participation);
    reading.rule(&["rounds.least_participation", "rounds.target_participation"], || {
        (least > target).then(|| {
            format!(
                "a round would go on until {least} are in, more than the target of {target}; lower \
                 rounds.least_participation"
            )
        })
    });
}

fn lease_within_round(reading: &mut Reading<'_>, config: &RunConfig) {
    let lease = config.session.lease_seconds;
    let (field, longest) = match config.rounds.deadline {
        Some(seconds) => ("rounds.deadline", seconds),
        None => ("rounds.longest_seconds", config.rounds.longest_seconds),
    };
    reading.rule(&[field, "session.lease_seconds"], || {
        (longest <= lease).then(|| {
            format!(
                "a round would end after {longest} s, before a lease of {lease} s does; make it several leases long"
            )
        })
    });
}

/// A replica's windows of a round are token ids [H, N, T + 1] in one frame.
fn windows_fit_frame(reading: &mut Reading<'_>, config: &RunConfig) {
    let steps = config.rounds.local_steps;
    let window = [config.training.sequences, config.training.context + 1];
    let fields =
        ["training.sequences", "rounds.local_steps", "training.context", "model.context", "model.preset"];
    reading.rule(&fields, || {
        let TooLarge { values, limit } = beyond_frame(&[steps, window[0], window[1]], Encoding::U32)?;
        let one_step = u64::from(window[0]) * u64::from(window[1]);
        let fitting = match limit / one_step {
            0 => "lower training.sequences".to_owned(),
            most => format!("give rounds.local_steps = {most} or fewer, or lower training.sequences"),
        };
        Some(format!(
            "the {} x {} windows of {} tokens that a worker gets for a round would have {values} values, and a frame \
             takes {limit}; {fitting}",
            steps, window[0], window[1]
        ))
    });
}
