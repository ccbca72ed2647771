//! How far a result may lie from its golden value, and what justifies it: the difference that the reference
//! itself shows between a run in f32 and one in f64 (`tolerances.json`).

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{GoldenError, Source, aggregate::AGGREGATION, files, schedule::SCHEDULE};

/// Tolerances by kind of result. `relative` is to the largest golden number of the tensor, `of value` to the
/// number itself.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tolerances {
    /// Hidden states and logits, relative.
    pub activation: f64,
    /// What enters a block's layers, and z between the steps of a sweep, relative.
    pub entry: f64,
    /// Gradients of activations and parameters, relative.
    pub gradient: f64,
    /// Gradient of the key bias, absolute: it is exactly 0.
    pub key_bias: f64,
    /// Losses, of value.
    pub loss: f64,
    /// Norm of all gradients, of value.
    pub norm: f64,
    /// Updated parameters whose gradient is well above noise, times max(1, value).
    pub settled: f64,
    /// From which size on a clipped gradient is above noise.
    pub settled_from: f64,
    /// All other updated parameters, absolute: two learning rates.
    pub unsettled: f64,
    /// Length of a parameter, of value.
    pub checksum_l2: f64,
    /// Sum of a parameter, relative to its length.
    pub checksum_sum: f64,
    /// Lengths of AdamW's moments, of value.
    pub moments: f64,
    /// AdamW alone on given gradients, absolute.
    pub adamw: f64,
}

impl Tolerances {
    /// For f32 on a CPU.
    pub const CPU: Tolerances = Tolerances {
        activation: 2e-5,
        entry: 5e-6,
        gradient: 5e-5,
        key_bias: 1e-6,
        loss: 5e-6,
        norm: 2e-5,
        settled: 2e-6,
        settled_from: 1e-6,
        unsettled: 2e-3,
        checksum_l2: 2e-6,
        checksum_sum: 2e-4,
        moments: 1e-4,
        adamw: 1e-6,
    };

    /// For f32 on a GPU.
    pub const GPU: Tolerances = Tolerances {
        activation: 1e-4,
        entry: 5e-5,
        gradient: 3e-4,
        key_bias: 1e-5,
        loss: 5e-5,
        norm: 2e-4,
        settled: 1e-5,
        settled_from: 1e-4,
        unsettled: 2e-3,
        checksum_l2: 2e-5,
        checksum_sum: 1e-3,
        moments: 1e-3,
        adamw: 1e-6,
    };

    /// Every tolerance by its name.
    fn named(&self) -> [(&'static str, f64); 12] {
        [
            ("activation", self.activation),
            ("entry", self.entry),
            ("gradient", self.gradient),
            ("key_bias", self.key_bias),
            ("loss", self.loss),
            ("norm", self.norm),
            ("settled", self.settled),
            ("unsettled", self.unsettled),
            ("checksum_l2", self.checksum_l2),
            ("checksum_sum", self.checksum_sum),
            ("moments", self.moments),
            ("adamw", self.adamw),
        ]
    }
}

/// How many times the reference's own error a tolerance may be. Kernels sum in another order than the
/// reference, on other instructions: a result may be several times as far off. What is a norm or a sum of
/// many numbers, or exactly 0, spreads most.
const LOOSEST: f64 = 128.0;
/// The same for the noise schedule, in f64: another approximation of the error function, inverted.
const LOOSEST_IN_F64: f64 = 1024.0;
/// How many times the CPU's tolerance a GPU's may be.
const LOOSEST_ON_GPU: f64 = 10.0;

const FILE: &str = "tolerances.json";

#[derive(Deserialize)]
struct References {
    groups: BTreeMap<String, Reference>,
}

/// Largest difference between the reference in f32 and in f64.
#[derive(Deserialize)]
struct Reference {
    max_abs: f64,
    /// Relative to the largest value of a tensor, or to the value.
    max_over_scale: f64,
}

/// A tolerance, its name, and the most it may be times the reference's error.
type Held = (&'static str, f64, f64);

/// The tolerance on a group of results by its name without its set's, with the error to hold against it.
fn held(group: &str, reference: &Reference) -> Option<(Held, f64)> {
    let cpu = Tolerances::CPU;
    let f32 = |name, tolerance| (name, tolerance, LOOSEST);
    let Reference { max_abs, max_over_scale } = *reference;
    Some(match group {
        "activations" | "zhat" | "logits" | "sweep logits" => {
            (f32("activation", cpu.activation), max_over_scale)
        }
        "h0" | "sweep z" => (f32("entry", cpu.entry), max_over_scale),
        "activation gradients" | "parameter gradients" => (f32("gradient", cpu.gradient), max_over_scale),
        "key bias gradient (zero)" => (f32("key_bias", cpu.key_bias), max_abs),
        "loss"
        | "step losses"
        | "loss after all steps"
        | "cross-entropy"
        | "weighted loss"
        | "sweep cross-entropy" => (f32("loss", cpu.loss), max_over_scale),
        "gradient norm" | "step gradient norm" => (f32("norm", cpu.norm), max_over_scale),
        "parameters after step 1" => (f32("settled", cpu.settled), max_over_scale),
        "parameters after step 1, tiny gradients" => (f32("unsettled", cpu.unsettled), max_abs),
        "checksum l2 / l2" => (f32("checksum_l2", cpu.checksum_l2), max_over_scale),
        "checksum sum / l2" => (f32("checksum_sum", cpu.checksum_sum), max_abs),
        "adam m l2" | "adam v l2" => (f32("moments", cpu.moments), max_over_scale),
        "params" | "m" | "v" => (f32("adamw", cpu.adamw), max_abs),
        "n5" | "n6" | "n7" | "outer" => (f32("aggregation", AGGREGATION), max_over_scale),
        "boundaries, plain f64, relative" => (("schedule", SCHEDULE, LOOSEST_IN_F64), max_abs),
        _ => return None,
    })
}

/// Whether the tolerances of this program follow from the reference's own error in f32: none is below it,
/// none above 128 times (in f64: 1024 times) the largest of its kind; and no GPU's is below the CPU's or
/// above ten times it.
///
/// # Errors
///
/// [`GoldenError::Tolerances`] naming those that do not; [`GoldenError::Malformed`] for a group of results
/// that has no tolerance.
pub fn require_justified(source: Source<'_>) -> Result<(), GoldenError> {
    let references: References = files::json(source, FILE)?;
    let malformed = |reason: String| GoldenError::Malformed { file: FILE.into(), reason };
    let mut largest: BTreeMap<&str, (Held, f64)> = BTreeMap::new();
    for (name, reference) in &references.groups {
        let (_, group) = name.split_once(' ').ok_or_else(|| malformed(format!("`{name}` names no set")))?;
        let (held, error) =
            held(group, reference).ok_or_else(|| malformed(format!("`{name}` has no tolerance here")))?;
        let entry = largest.entry(held.0).or_insert((held, 0.0));
        entry.1 = entry.1.max(error);
    }
    let mut wrong = Vec::new();
    for ((name, tolerance, loosest), error) in largest.into_values() {
        if !(error <= tolerance && tolerance <= loosest * error) {
            wrong.push(format!("{name} is {tolerance:e}, the reference's error {error:e}"));
        }
    }
    for ((name, cpu), (_, gpu)) in Tolerances::CPU.named().into_iter().zip(Tolerances::GPU.named()) {
        // Ten times 1e-6 is not 1e-5 to the last bit.
        let loosest = LOOSEST_ON_GPU * cpu * (1.0 + 4.0 * f64::EPSILON);
        if !(cpu <= gpu && gpu <= loosest) {
            wrong.push(format!("{name} is {cpu:e} on the CPU and {gpu:e} on a GPU"));
        }
    }
    if wrong.is_empty() { Ok(()) } else { Err(GoldenError::Tolerances(wrong.join("; "))) }
}
