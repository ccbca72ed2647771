//! The self-benchmark of a worker: its device, and its link to the coordinator.

use futures::{FutureExt, pin_mut, select_biased};
use protocol::{
    frame::{self, Frame},
    message::{Down, LinkSpeed, ToWorker},
    tab::SessionEvent,
};

use super::Connection;
use crate::{
    error::Stop,
    link::LinkProbe,
    platform::{Blobs, Clock, Network, Reporter},
};

/// Seconds to wait for the answer to a probe before the link counts as not measured.
const PROBE_SECONDS: f64 = 20.0;

/// Frames other than the answer that may come in between.
const MOST_SET_ASIDE: usize = 64;

impl<N: Network, C: Clock, B: Blobs, R: Reporter> Connection<'_, N, C, B, R> {
    pub(super) async fn benchmark(&mut self) -> Result<(), Stop> {
        self.tell(SessionEvent::Benchmarking);
        let clock = &self.platform.clock;
        clock.yield_now().await;
        match self.state.devices.fastest(&self.welcome.run, clock).await {
            Ok((mut profile, device)) => {
                self.device = Some(device);
                profile.link = self.measure_link().await?;
                self.tell(SessionEvent::Profiled { profile: profile.clone() });
                self.line.say(profile).await?;
                self.tell(SessionEvent::Spare);
                Ok(())
            }
            Err(words) => Err(Stop::failed(format!("this device cannot compute: {words}"))),
        }
    }

    /// Times frames to the coordinator and back. What else arrives meanwhile is looked at afterwards.
    async fn measure_link(&mut self) -> Result<Option<LinkSpeed>, Stop> {
        let mut set_aside = Vec::new();
        let measured = self.probe_link(&mut set_aside).await;
        self.line.inbox.put_back(set_aside);
        measured
    }

    async fn probe_link(&self, set_aside: &mut Vec<Vec<u8>>) -> Result<Option<LinkSpeed>, Stop> {
        let clock = &self.platform.clock;
        let mut probe = LinkProbe::begin();
        while let Some(ask) = probe.next(clock.now()) {
            let deadline = clock.sleep(PROBE_SECONDS).fuse();
            pin_mut!(deadline);
            self.line.say_with(ask, &vec![0; ask.padding as usize]).await?;
            loop {
                let frame = self.line.inbox.next().fuse();
                pin_mut!(frame);
                let bytes = select_biased! {
                    bytes = frame => bytes,
                    () = deadline => return Ok(None),
                };
                match frame::decode(&bytes) {
                    Ok(Frame { message: ToWorker::Down(Down::ProbeAnswer(answer)), .. }) => {
                        if probe.answered(answer.number, clock.now()) {
                            break;
                        }
                    }
                    Ok(Frame { message: ToWorker::Down(Down::HeartbeatAnswer(_)), .. }) => {}
                    _ if set_aside.len() < MOST_SET_ASIDE => set_aside.push(bytes),
                    _ => {
                        set_aside.push(bytes);
                        return Ok(None);
                    }
                }
            }
        }
        Ok(Some(probe.result()))
    }
}
