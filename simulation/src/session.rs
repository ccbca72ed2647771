//! The real session of a virtual worker, over the virtual network.

use engine::Device;
use protocol::{
    VERSION,
    message::{Hello, WorkerKind},
};
use worker::{End, Leave, devices::Devices, platform::Clock};

use crate::{network::Shared, platform::platform, virtual_worker::Pace};

/// Seconds after which a worker that was turned away comes again, as somebody new.
const COMES_AGAIN: f64 = 1.0;

/// Takes part in the run until it is over; comes again, as somebody new, when it is turned away.
pub(crate) async fn session(network: Shared, endpoint: usize, pace: Pace) -> End {
    loop {
        let platform = platform(&network, endpoint, &pace);
        let hello = Hello {
            protocol: VERSION,
            build: "simulated".into(),
            kind: WorkerKind::Browser,
            name: pace.spec.name.clone(),
        };
        let devices = Devices::described(pace.spec.profile.clone(), Device::Cpu);
        // Dropped, it would count as the wish to leave.
        let (_nobody_asks, leave) = Leave::new();
        match worker::run(&platform, hello, devices, leave).await {
            End::Refused(_) => platform.clock.sleep(COMES_AGAIN).await,
            end => return end,
        }
    }
}
