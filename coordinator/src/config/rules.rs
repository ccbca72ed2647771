//! What must hold between the fields of `run.toml`, in both modes and in pipeline mode.

use control::pipeline::plan::Stages;
use protocol::tensor::Encoding;

use super::{
    block_rules,
    choices::{ModeName, ServingPlace},
    fields::least_workers,
    read::Reading,
    rules_of_both::{TooLarge, beyond_frame, workers_are_let_in},
    run_config::RunConfig,
};
use crate::data::tokenizer::TokenizerKind;

/// Notes whatever does not fit together.
pub(super) fn check(reading: &mut Reading<'_>, config: &RunConfig) {
    other_modes_are_left_out(reading, config.mode);
    heads_divide_width(reading, config);
    tokenizer_has_files(reading, config);
    tokenizer_has_end_of_text(reading, config);
    something_is_held_out(reading, config);
    warmup_fits_run(reading, config);
    rate_does_not_rise(reading, config);
    sequences_fit_model(reading, config);
    heartbeat_within_lease(reading, config);
    lease_within_step(reading, config);
    match config.mode {
        ModeName::Pipeline => {
            stages_have_layers(reading, config);
            stages_have_workers(reading, config);
            workers_are_let_in(reading, "pipeline.start_with", "pipeline.stages", config);
            micro_batch_fits_frame(reading, config);
        }
        ModeName::Serve => {
            there_is_a_model_to_serve(reading, config);
            stages_have_layers(reading, config);
            stages_have_workers(reading, config);
            workers_are_let_in(reading, "pipeline.start_with", "pipeline.stages", config);
        }
        ModeName::Block => {
            blocks_are_not_served_by_workers(reading, config);
            no_gpt2_to_begin_with(reading, config);
            block_rules::check(reading, config);
        }
    }
}

/// A field of another mode would be passed over in silence, and its author would wonder.
fn other_modes_are_left_out(reading: &mut Reading<'_>, mode: ModeName) {
    for section in RunConfig::SECTIONS.iter().filter(|section| !section.is_of(mode)) {
        let other = section.modes.first().map_or("pipeline", |other| other.name());
        for path in section.fields.iter().map(|field| section.path(field.name)) {
            if reading.is_written(&path) {
                let name = mode.name();
                let message = format!(
                    "is of {other} mode, not {name} mode; leave it out, or set mode = \"{other}\" at the top"
                );
                reading.fault(&path, message);
            }
        }
    }
}

fn heads_divide_width(reading: &mut Reading<'_>, config: &RunConfig) {
    let (width, heads) = (config.model.width, config.model.heads);
    reading.rule(&["model.heads", "model.width", "model.preset"], || {
        let fit: Vec<String> = (1..=width)
            .filter(|h| width % h == 0 && h.abs_diff(heads) <= heads.max(8))
            .map(|h| h.to_string())
            .collect();
        (!width.is_multiple_of(heads)).then(|| {
            format!(
                "model.width {width} cannot be divided among {heads} heads; set model.heads to a divisor of it ({}), \
                 or model.width to a multiple of {heads}",
                fit.join(", ")
            )
        })
    });
}

fn there_is_a_model_to_serve(reading: &mut Reading<'_>, config: &RunConfig) {
    reading.rule(&["mode", "model.from"], || {
        config.model.from.is_none().then(|| {
            "a run that only writes texts needs a model; give its folder in model.from, or set mode = \"pipeline\" to \
             train one"
                .to_owned()
        })
    });
    reading.rule(&["serving.where", "mode"], || {
        (config.serving.r#where != ServingPlace::Workers).then(|| {
            "in a run that only writes texts the workers write them; leave serving.where out, or set mode = \
             \"pipeline\""
                .to_owned()
        })
    });
}

fn blocks_are_not_served_by_workers(reading: &mut Reading<'_>, config: &RunConfig) {
    reading.rule(&["serving.where", "mode"], || {
        (config.serving.r#where == ServingPlace::Workers).then(|| {
            "denoising blocks are not held by workers from round to round; set serving.where = \"coordinator\""
                .to_owned()
        })
    });
}

fn no_gpt2_to_begin_with(reading: &mut Reading<'_>, config: &RunConfig) {
    reading.rule(&["model.from", "mode"], || {
        config.model.from.is_some().then(|| {
            "denoising blocks cannot begin with a GPT-2; leave model.from out, or set mode = \"pipeline\""
                .to_owned()
        })
    });
}

fn tokenizer_has_files(reading: &mut Reading<'_>, config: &RunConfig) {
    let (tokenizer, files) = (config.data.tokenizer, &config.data.tokenizer_files);
    reading.rule(&["data.tokenizer_files", "data.tokenizer"], || {
        (files.is_some() && tokenizer != TokenizerKind::Gpt2).then(|| {
            format!(
                "the tokenizer \"{}\" has no files; leave the field out, or set data.tokenizer = \"gpt2\"",
                tokenizer.name()
            )
        })
    });
}

fn tokenizer_has_end_of_text(reading: &mut Reading<'_>, config: &RunConfig) {
    let (tokenizer, end_of_text) = (config.data.tokenizer, config.data.end_of_text);
    reading.rule(&["data.end_of_text", "data.tokenizer"], || {
        (end_of_text && tokenizer != TokenizerKind::Gpt2).then(|| {
            format!(
                "the tokenizer \"{}\" has no token for the end of a document; leave the field out, or set \
                 data.tokenizer = \"gpt2\"",
                tokenizer.name()
            )
        })
    });
}

fn something_is_held_out(reading: &mut Reading<'_>, config: &RunConfig) {
    reading.rule(&["data.validation_fraction", "training.validate_every"], || {
        (config.data.validation_fraction == 0.0 && config.training.validate_every > 0).then(|| {
            "nothing is held out to validate on; give data.validation_fraction = 0.1, or set \
             training.validate_every = 0 for no validation"
                .to_owned()
        })
    });
}

fn warmup_fits_run(reading: &mut Reading<'_>, config: &RunConfig) {
    let (warmup, steps) = (config.training.warmup_steps, config.training.steps);
    reading.rule(&["training.warmup_steps", "training.steps"], || {
        (warmup > steps).then(|| {
            format!(
                "the warm-up of {warmup} steps is longer than the run of {steps}; lower training.warmup_steps or \
                 raise training.steps"
            )
        })
    });
}

fn rate_does_not_rise(reading: &mut Reading<'_>, config: &RunConfig) {
    let (last, rate) = (config.training.final_learning_rate, config.training.learning_rate);
    reading.rule(&["training.final_learning_rate", "training.learning_rate"], || {
        (last > rate).then(|| {
            format!("the rate would rise to {last} at the end; give at most training.learning_rate, which is {rate}")
        })
    });
}

fn sequences_fit_model(reading: &mut Reading<'_>, config: &RunConfig) {
    let (tokens, positions) = (config.training.context, config.model.context);
    reading.rule(&["training.context", "model.context", "model.preset"], || {
        (tokens > positions).then(|| {
            format!(
                "sequences of {tokens} tokens are longer than the model's {positions} positions; lower \
                 training.context or raise model.context"
            )
        })
    });
}

fn heartbeat_within_lease(reading: &mut Reading<'_>, config: &RunConfig) {
    let (heartbeat, lease) = (config.session.heartbeat_seconds, config.session.lease_seconds);
    reading.rule(&["session.lease_seconds", "session.heartbeat_seconds"], || {
        (heartbeat >= lease).then(|| {
            format!(
                "a lease of {lease} s ends before the next heartbeat, which comes every {heartbeat} s; make the lease \
                 several heartbeats long"
            )
        })
    });
}

fn lease_within_step(reading: &mut Reading<'_>, config: &RunConfig) {
    let (lease, deadline) = (config.session.lease_seconds, config.session.step_deadline_seconds);
    reading.rule(&["session.step_deadline_seconds", "session.lease_seconds"], || {
        (lease >= deadline).then(|| {
            format!(
                "a step would be given up after {deadline} s, before a lease of {lease} s ends; make it several leases \
                 long"
            )
        })
    });
}

fn stages_have_layers(reading: &mut Reading<'_>, config: &RunConfig) {
    let (stages, layers) = (config.pipeline.stages, config.model.layers);
    reading.rule(&["pipeline.stages", "model.layers", "model.preset"], || match stages {
        Stages::Exactly(count) if count > layers => Some(format!(
            "{count} stages need at least one layer each, but the model has {layers}; lower pipeline.stages or raise \
             model.layers"
        )),
        _ => None,
    });
}

fn stages_have_workers(reading: &mut Reading<'_>, config: &RunConfig) {
    let least = least_workers(config.pipeline.stages);
    reading.rule(&["pipeline.start_with", "pipeline.stages"], || {
        (config.pipeline.start_with < least).then(|| {
            format!("{least} stages need as many workers; give at least that, or lower pipeline.stages")
        })
    });
}

/// Activations and gradients are [N, T, d].
fn micro_batch_fits_frame(reading: &mut Reading<'_>, config: &RunConfig) {
    let shape = [config.training.sequences, config.training.context, config.model.width];
    let fields = ["training.sequences", "training.context", "model.width", "model.context", "model.preset"];
    reading.rule(&fields, || {
        let TooLarge { values, limit } = beyond_frame(&shape, Encoding::F32)?;
        Some(format!(
            "one micro-batch between stages would have {values} values, and a frame takes {limit}; lower \
             training.sequences and raise training.micro_batches"
        ))
    });
}
