//! What a worker computes: models, optimizer, self-benchmark, and its session. Builds natively and for wasm32.
//!
//! A [`stage::Stage`] holds a worker's share of the model and computes on a [`device::Device`]: the processor,
//! through this crate's own kernels, or WebGPU, through burn. Everything that may read from a device is async,
//! because a browser cannot block on a GPU.

pub mod aggregate;
pub mod block;
pub mod checkpoint;
pub mod device;
pub mod generate;
#[cfg(feature = "golden")]
pub mod golden;
pub(crate) mod host;
pub mod init;
pub mod learning_rate;
pub(crate) mod model;
pub mod parameters;
pub(crate) mod part;
pub mod profile;
pub mod session;
pub mod shapes;
pub mod stage;

pub use device::Device;
