//! The device that a worker computes on.

use protocol::spec::Backend;

/// Where a stage lives and computes.
#[derive(Debug, Clone)]
pub enum Device {
    /// The processor, through this crate's own kernels on plain memory.
    Cpu,
    /// A device of burn: WebGPU, or burn's own CPU backend as a reference for tests.
    Burn(burn_tensor::Device),
}

impl Device {
    /// burn's CPU backend. Slower than [`Device::Cpu`]; runs the very code of the WebGPU path.
    #[cfg(feature = "flex")]
    pub fn flex() -> Self {
        Device::Burn(burn_tensor::Device::flex())
    }
}

/// Why a backend cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// A build without the feature `gpu`.
    #[error("this build has no WebGPU support")]
    NotBuiltIn,
    /// No adapter, or one that failed; in the words of wgpu.
    #[error("WebGPU cannot be used: {0}")]
    WebGpu(String),
}

/// Opens `backend`. The CPU always opens; WebGPU needs the feature `gpu` and an adapter.
///
/// In a browser, look for the feature `timestamp-query` on the adapter first: without it the first tensor
/// panics inside cubecl, which no caller can catch. Opening WebGPU twice in one process is an error of the
/// runtime, so keep the device.
///
/// # Errors
///
/// [`DeviceError`], in words for a person.
pub async fn open(backend: Backend) -> Result<Device, DeviceError> {
    match backend {
        Backend::Cpu => Ok(Device::Cpu),
        Backend::WebGpu => open_webgpu().await,
    }
}

#[cfg(feature = "gpu")]
async fn open_webgpu() -> Result<Device, DeviceError> {
    #[cfg(web)]
    construct();
    let device = burn_tensor::Device::wgpu_options().init_async().await;
    device.map(Device::Burn).map_err(|error| DeviceError::WebGpu(error.to_string()))
}

#[cfg(not(feature = "gpu"))]
async fn open_webgpu() -> Result<Device, DeviceError> {
    Err(DeviceError::NotBuiltIn)
}

/// Runs the module's static constructors, with which cubecl's compiler registers its parts.
///
/// Whoever calls them by name keeps the linker from wrapping every export of the module in a call of all of
/// them. There are thousands: each event, timer or promise that enters the module would cost milliseconds, and
/// WebGPU, which lives on promises, runs several times slower.
#[cfg(all(web, feature = "gpu"))]
fn construct() {
    unsafe extern "C" {
        fn __wasm_call_ctors();
    }
    static ONCE: std::sync::Once = std::sync::Once::new();
    // SAFETY: the linker always defines this function, and `Once` runs it a single time. All it does here is
    // register static items in lists (crate `inventory`).
    ONCE.call_once(|| unsafe { __wasm_call_ctors() });
}
