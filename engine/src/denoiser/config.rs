//! `config.json` of a model of block mode as other programs read it: `docs/block-checkpoint.md` has every field.

use protocol::{
    checked::Checked,
    delta::DeltaEncoding,
    spec::{BlockSpec, ModelSpec, Moments, OptimizerSpec, RunSpec},
    tensor::Encoding,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{BlockError, layers_per_block, noise::SIGMA_DATA, schedule, shapes::TIME_FEATURES};

/// What the field `format` says.
const FORMAT: &str = "cohort-blocks";
/// Of the layout; higher when an older reader would misread it.
const VERSION: u64 = 1;
const EPSILON: f64 = 1e-5;
const ACTIVATION: &str = "gelu_tanh";
const METHOD: &str = "euler";

/// Why a `config.json` of block mode cannot be used.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ConfigError {
    /// A field is missing or of another kind.
    #[error(
        "its config.json is of block mode, but not as this version of cohort writes it ({0}); use the version that wrote it"
    )]
    Fields(String),
    /// A later layout.
    #[error(
        "its config.json says version {0} of the layout, and this version of cohort reads version {VERSION}; use the \
         version that wrote it"
    )]
    Version(String),
    /// A formula that is not computed here.
    #[error(
        "its config.json says {field} = {found}, and cohort computes with {expected} only; export the model again"
    )]
    Other {
        /// Name of the field.
        field: &'static str,
        /// What it says.
        found: String,
        /// What it would have to say.
        expected: String,
    },
    /// Sizes that make no model.
    #[error(transparent)]
    Block(#[from] BlockError),
}

#[derive(Serialize, Deserialize)]
struct Config {
    format: String,
    version: u64,
    name: String,
    vocabulary: u32,
    width: u32,
    heads: u32,
    positions: u32,
    context: u32,
    blocks: u32,
    layers_per_block: u32,
    layer_norm_epsilon: f64,
    activation: String,
    time_features: usize,
    noise: NoiseConfig,
    sampler: Sampler,
}

#[derive(Serialize, Deserialize)]
struct NoiseConfig {
    sigma_data: f64,
    sigma_min: f64,
    sigma_max: f64,
    p_mean: f64,
    p_std: f64,
    gamma: f64,
    /// Lowest and highest sigma of each block, block 0 first.
    ranges: Vec<[f64; 2]>,
    training_ranges: Vec<[f64; 2]>,
}

#[derive(Serialize, Deserialize)]
struct Sampler {
    method: String,
    start_deviation: f64,
    sigmas: Vec<f64>,
}

/// The file's text for a run in block mode.
///
/// # Errors
///
/// [`BlockError`] for a run whose sizes or noise make no model.
pub fn export(run: &RunSpec) -> Result<String, BlockError> {
    Ok(format!("{:#}\n", serde_json::to_value(of(run)?).unwrap_or_default()))
}

fn of(run: &RunSpec) -> Result<Config, BlockError> {
    let spec = run.blocks.as_ref().ok_or(BlockError::NotBlockMode)?;
    let ModelSpec { vocabulary, positions, width, heads, layers, .. } = run.model;
    let layers_per_block =
        layers_per_block(&run.model, spec).ok_or(BlockError::Layers { layers, count: spec.count })?;
    let schedule = schedule(spec)?;
    let of_all = |range: &dyn Fn(u32) -> (f64, f64)| -> Vec<[f64; 2]> {
        (0..spec.count).map(|block| range(block).into()).collect()
    };
    Ok(Config {
        format: FORMAT.into(),
        version: VERSION,
        name: run.name.clone(),
        vocabulary,
        width,
        heads,
        positions,
        context: run.context,
        blocks: spec.count,
        layers_per_block,
        layer_norm_epsilon: EPSILON,
        activation: ACTIVATION.into(),
        time_features: TIME_FEATURES,
        noise: NoiseConfig {
            sigma_data: SIGMA_DATA,
            sigma_min: spec.sigma_min,
            sigma_max: spec.sigma_max,
            p_mean: spec.p_mean,
            p_std: spec.p_std,
            gamma: spec.gamma,
            ranges: of_all(&|block| schedule.range(block)),
            training_ranges: of_all(&|block| schedule.training_range(block)),
        },
        sampler: Sampler {
            method: METHOD.into(),
            start_deviation: libm::sqrt(1.0 + spec.sigma_max * spec.sigma_max),
            sigmas: schedule.one_sweep(),
        },
    })
}

/// The run of a `config.json` of block mode: of a checkpoint, which has the run itself, or of an exported model, whose
/// settings of training are then only such as a run must have. None for a config of another kind.
///
/// # Errors
///
/// [`ConfigError`] for one that is of block mode and cannot be used.
pub fn read(config: &str) -> Result<Option<RunSpec>, ConfigError> {
    let Ok(value) = serde_json::from_str::<Value>(config) else { return Ok(None) };
    let fields = |error: serde_json::Error| ConfigError::Fields(error.to_string());
    let run = if value["format"] == FORMAT {
        if value["version"] != VERSION {
            return Err(ConfigError::Version(value["version"].to_string()));
        }
        exported(serde_json::from_value(value).map_err(fields)?)?
    } else if value["blocks"].is_object() {
        serde_json::from_value(value).map_err(fields)?
    } else {
        return Ok(None);
    };
    run.check().map_err(|rule| ConfigError::Fields(rule.to_string()))?;
    Ok(Some(run))
}

/// The run behind an exported config whose formulas are those that are computed here.
fn exported(config: Config) -> Result<RunSpec, ConfigError> {
    let NoiseConfig { sigma_min, sigma_max, p_mean, p_std, gamma, .. } = config.noise;
    let run = RunSpec {
        name: config.name.clone(),
        model: ModelSpec {
            vocabulary: config.vocabulary,
            positions: config.positions,
            width: config.width,
            heads: config.heads,
            layers: config.blocks.saturating_mul(config.layers_per_block),
            tie_embeddings: false,
        },
        optimizer: OptimizerSpec {
            beta1: 0.9,
            beta2: 0.95,
            epsilon: 1e-8,
            weight_decay: 0.1,
            clip_norm: 1.0,
        },
        sequences: 1,
        context: config.context,
        micro_batches: 1,
        recompute: false,
        wire: Encoding::F32,
        moments: Moments::None,
        trains: true,
        cache_bytes: 0,
        blocks: Some(BlockSpec {
            count: config.blocks,
            sigma_min,
            sigma_max,
            p_mean,
            p_std,
            gamma,
            delta: DeltaEncoding::F32,
        }),
    };
    run.check().map_err(|rule| ConfigError::Fields(rule.to_string()))?;
    let ours = of(&run)?;
    let other = |field, found: String, expected: String| Err(ConfigError::Other { field, found, expected });
    for (field, found, expected) in [
        ("activation", &config.activation, &ours.activation),
        ("sampler.method", &config.sampler.method, &ours.sampler.method),
    ] {
        if found != expected {
            return other(field, found.clone(), expected.clone());
        }
    }
    for (field, found, expected) in [
        ("layer_norm_epsilon", vec![config.layer_norm_epsilon], vec![ours.layer_norm_epsilon]),
        ("time_features", vec![config.time_features as f64], vec![ours.time_features as f64]),
        ("noise.sigma_data", vec![config.noise.sigma_data], vec![ours.noise.sigma_data]),
        ("noise.ranges", config.noise.ranges.concat(), ours.noise.ranges.concat()),
        ("sampler.sigmas", config.sampler.sigmas, ours.sampler.sigmas),
        ("sampler.start_deviation", vec![config.sampler.start_deviation], vec![ours.sampler.start_deviation]),
    ] {
        // What rounding to decimals and back may change, and no more.
        let same = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-12 * b.abs();
        if found.len() != expected.len() || !found.iter().zip(&expected).all(same) {
            return other(field, format!("{found:?}"), format!("{expected:?}"));
        }
    }
    Ok(run)
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::fixtures;

    #[test]
    fn a_config_describes_the_model_it_came_from() {
        let run = fixtures::block_run();
        let back = read(&export(&run).unwrap()).unwrap().unwrap();
        assert_eq!((back.model, back.blocks, back.context), (run.model, run.blocks, run.context));
        assert_eq!(back.name, run.name);
        assert_eq!(export(&fixtures::run()), Err(BlockError::NotBlockMode));
    }

    #[test]
    fn a_checkpoint_has_the_run_itself_and_a_gpt2_has_none() {
        let run = fixtures::block_run();
        assert_eq!(read(&serde_json::to_string(&run).unwrap()), Ok(Some(run)));
        assert_eq!(read(&crate::checkpoint::config(&fixtures::run().model)), Ok(None));
        assert_eq!(read("not JSON"), Ok(None));
    }

    #[test]
    fn what_cannot_be_used_is_named() {
        let changed = |change: fn(&mut Value)| {
            let mut value: Value = serde_json::from_str(&export(&fixtures::block_run()).unwrap()).unwrap();
            change(&mut value);
            read(&value.to_string()).unwrap_err().to_string()
        };
        let later = changed(|config| config["version"] = 2.into());
        assert!(
            later.contains("says version 2 of the layout") && later.contains("use the version"),
            "{later}"
        );
        let lacking = changed(|config| drop(config.as_object_mut().unwrap().remove("heads")));
        assert!(lacking.contains("missing field `heads`"), "{lacking}");
        assert!(changed(|config| config["activation"] = "relu".into()).contains("activation = relu"));
        assert!(
            changed(|config| config["noise"]["sigma_data"] = 1.into()).contains("noise.sigma_data = [1.0]")
        );
        assert!(
            changed(|config| config["sampler"]["sigmas"][0] = 9.into()).contains("sampler.sigmas = [9.0")
        );
        assert!(changed(|config| config["noise"]["ranges"][0][0] = 2.into()).contains("noise.ranges = [2.0"));
        assert!(changed(|config| config["noise"]["sigma_min"] = 20.into()).contains("blocks.sigma_max"));
        assert!(changed(|config| config["blocks"] = 0.into()).contains("blocks"));
        assert!(changed(|config| config["blocks"] = u32::MAX.into()).contains("not as this version"));
        let mut run = serde_json::to_value(fixtures::block_run()).unwrap();
        run["blocks"]["schedule"] = "new".into();
        assert!(read(&run.to_string()).unwrap_err().to_string().contains("unknown field `schedule`"));
    }
}
