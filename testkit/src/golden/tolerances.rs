//! How far a result may lie from its golden value.

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
}
