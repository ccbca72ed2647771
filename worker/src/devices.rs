//! The backends of this device, and which of them is the fastest for a run.

use engine::{Device, device, gpt2::shapes, profile};
use futures::{
    FutureExt,
    future::{LocalBoxFuture, Shared},
};
use protocol::{
    limits::{LABEL, MEMORY_BYTES, THREADS, shorten},
    message::Profile,
    spec::{Backend, RunSpec},
};

use crate::platform::Clock;

/// Seconds the self-benchmark of one backend may take.
const BUDGET_SECONDS: f64 = 2.0;
/// Seconds of a repeated one, of the backend that was chosen.
const AGAIN_SECONDS: f64 = 0.5;

/// What counts as no time, in seconds.
const LEAST_SECONDS: f64 = 1e-7;
/// The longest time that can be told, in seconds.
const LONGEST_SECONDS: f64 = 1e7;

/// A backend worth trying.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Where it computes.
    pub backend: Backend,
    /// Adapter or processor, for people to read.
    pub description: String,
    /// Bytes of the largest buffer that it takes; None: memory is the limit.
    pub largest_buffer: Option<u64>,
}

/// A device that is being opened or is open. Kept where it cannot be dropped half-way: a second WebGPU setup is an error.
type Opened = Shared<LocalBoxFuture<'static, Result<Device, String>>>;

/// The backends of this device. Each is opened once and kept.
pub struct Devices {
    candidates: Vec<(Candidate, Option<Opened>)>,
    threads: u32,
    memory_bytes: u64,
    chosen: Option<(RunSpec, Profile, Device)>,
    described: Option<(Profile, Device)>,
}

impl Devices {
    /// To be measured. `memory_bytes` is what a stage may take, 0 for unknown.
    pub fn new(candidates: Vec<Candidate>, threads: u32, memory_bytes: u64) -> Self {
        Self {
            candidates: candidates.into_iter().map(|candidate| (candidate, None)).collect(),
            threads: threads.min(THREADS as u32),
            memory_bytes: memory_bytes.min(MEMORY_BYTES),
            chosen: None,
            described: None,
        }
    }

    /// A device whose profile is given instead of measured, such as a simulated one. The link is measured all the same.
    pub fn described(profile: Profile, device: Device) -> Self {
        Self { described: Some((profile, device)), ..Self::new(vec![], 1, 0) }
    }

    /// The fastest backend at the run's shapes. All are measured once per run; asked again, only the chosen one is, and
    /// more briefly. The profile lacks the link.
    ///
    /// # Errors
    /// What each backend failed with, in words, when none works.
    pub(crate) async fn fastest(
        &mut self,
        run: &RunSpec,
        clock: &impl Clock,
    ) -> Result<(Profile, Device), String> {
        if let Some(described) = &self.described {
            return Ok(described.clone());
        }
        if let Some((known, profile, device)) = &mut self.chosen
            && known == run
        {
            let measured = measure(device, run, AGAIN_SECONDS, clock).await?;
            profile.layer = measured.layer;
            profile.embedding = measured.embedding;
            profile.head_seconds = measured.head_seconds;
            return Ok((profile.clone(), device.clone()));
        }
        let mut best: Option<(Profile, Device)> = None;
        let mut failures = Vec::new();
        for (candidate, opened) in &mut self.candidates {
            match first(candidate, opened, run, clock).await {
                Ok((measured, device)) => {
                    let profile = Profile {
                        backend: candidate.backend,
                        device: shorten(&candidate.description, LABEL),
                        threads: self.threads,
                        memory_bytes: self.memory_bytes,
                        layer: measured.layer,
                        embedding: measured.embedding,
                        head_seconds: measured.head_seconds,
                        link: None,
                    };
                    if best.as_ref().is_none_or(|(b, _)| profile.layer.total() < b.layer.total()) {
                        best = Some((profile, device));
                    }
                }
                Err(words) => failures.push(format!("{:?}: {words}", candidate.backend)),
            }
        }
        let (profile, device) = best.ok_or_else(|| match failures.is_empty() {
            true => "this device offers nothing to compute on".to_string(),
            false => failures.join("; "),
        })?;
        self.chosen = Some((run.clone(), profile.clone(), device.clone()));
        Ok((profile, device))
    }
}

async fn first(
    candidate: &Candidate,
    opened: &mut Option<Opened>,
    run: &RunSpec,
    clock: &impl Clock,
) -> Result<(profile::Measured, Device), String> {
    let needed = shapes::largest_buffer(run);
    if let Some(largest) = candidate.largest_buffer.filter(|largest| *largest < needed) {
        let mib = |bytes: u64| bytes.div_ceil(1 << 20);
        return Err(format!(
            "this run needs a buffer of {} MiB, and it takes at most {}",
            mib(needed),
            mib(largest)
        ));
    }
    let backend = candidate.backend;
    let open = async move { device::open(backend).await.map_err(|error| error.to_string()) };
    let device = opened.get_or_insert_with(|| open.boxed_local().shared()).clone().await;
    if device.is_err() {
        *opened = None;
    }
    let device = device?;
    Ok((measure(&device, run, BUDGET_SECONDS, clock).await?, device))
}

async fn measure(
    device: &Device,
    run: &RunSpec,
    budget: f64,
    clock: &impl Clock,
) -> Result<profile::Measured, String> {
    let mut measured =
        profile::measure(run, device, budget, || clock.now()).await.map_err(|error| error.to_string())?;
    // A coarse clock may see no time pass; the planner divides by these.
    let possible = |seconds: f64| seconds.clamp(LEAST_SECONDS, LONGEST_SECONDS);
    for pass in [&mut measured.layer, &mut measured.embedding] {
        pass.forward = possible(pass.forward);
        pass.backward = possible(pass.backward);
    }
    measured.head_seconds = possible(measured.head_seconds);
    Ok(measured)
}

#[cfg(test)]
mod tests {
    use futures::executor::block_on;

    use super::*;

    fn candidate(largest_buffer: Option<u64>) -> Candidate {
        Candidate { backend: Backend::Cpu, description: "test".into(), largest_buffer }
    }

    /// Moves by a second whenever it is looked at.
    #[derive(Default)]
    struct Ticking(std::cell::Cell<f64>);

    impl Clock for Ticking {
        fn now(&self) -> f64 {
            self.0.set(self.0.get() + 1.0);
            self.0.get()
        }

        async fn sleep(&self, _: f64) {}

        async fn yield_now(&self) {}
    }

    #[test]
    fn a_backend_whose_buffers_are_too_small_is_passed_over_and_named() {
        let clock = Ticking::default();
        let run = testkit::fixtures::run();
        let mut devices = Devices::new(vec![candidate(Some(64)), candidate(None)], 1, 0);
        let (profile, _) = block_on(devices.fastest(&run, &clock)).unwrap();
        assert_eq!(profile.device, "test");
        let mut devices = Devices::new(vec![candidate(Some(64))], 1, 0);
        let words = block_on(devices.fastest(&run, &clock)).unwrap_err();
        assert_eq!(words, "Cpu: this run needs a buffer of 1 MiB, and it takes at most 1");
    }
}
