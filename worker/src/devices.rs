//! The backends of this device, and which of them is the fastest for a run.

use protocol::{
    limits::{LABEL, shorten},
    message::Profile,
    spec::{Backend, RunSpec},
};

use crate::{Device, device, profile, shapes};

/// Seconds the self-benchmark of one backend may take.
const BUDGET_SECONDS: f64 = 2.0;
/// Seconds of a repeated one, of the backend that was chosen.
const AGAIN_SECONDS: f64 = 0.5;

/// What counts as no time.
const LEAST_SECONDS: f64 = 1e-7;

/// A backend worth trying.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    pub backend: Backend,
    /// Adapter or processor, for people to read.
    pub description: String,
    /// Bytes of the largest buffer that it takes; None: memory is the limit.
    pub largest_buffer: Option<u64>,
}

/// The backends of this device. Each is opened once and kept: a second WebGPU setup is an error.
pub struct Devices {
    candidates: Vec<(Candidate, Option<Device>)>,
    threads: u32,
    memory_bytes: u64,
    chosen: Option<(RunSpec, Profile, Device)>,
}

impl Devices {
    /// `memory_bytes` is what a stage may take, 0 for unknown.
    pub fn new(candidates: Vec<Candidate>, threads: u32, memory_bytes: u64) -> Self {
        let candidates = candidates.into_iter().map(|c| (c, None)).collect();
        Self { candidates, threads, memory_bytes, chosen: None }
    }

    /// The fastest backend at the run's shapes. `now` is a clock in seconds. All are measured once per run; asked
    /// again, only the chosen one is, and more briefly. The profile lacks the link.
    ///
    /// # Errors
    /// What each backend failed with, in words, when none works.
    pub async fn fastest(
        &mut self,
        run: &RunSpec,
        now: impl Fn() -> f64,
    ) -> Result<(Profile, Device), String> {
        if let Some((known, profile, device)) = &mut self.chosen
            && known == run
        {
            let measured = measure(device, run, AGAIN_SECONDS, &now).await?;
            profile.layer = measured.layer;
            profile.embedding = measured.embedding;
            profile.head_seconds = measured.head_seconds;
            return Ok((profile.clone(), device.clone()));
        }
        let mut best: Option<(Profile, Device)> = None;
        let mut failures = Vec::new();
        for (candidate, opened) in &mut self.candidates {
            match first(candidate, opened, run, &now).await {
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
    opened: &mut Option<Device>,
    run: &RunSpec,
    now: &impl Fn() -> f64,
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
    let device = match opened {
        Some(device) => device.clone(),
        None => device::open(candidate.backend).await.map_err(|e| e.to_string())?,
    };
    *opened = Some(device.clone());
    Ok((measure(&device, run, BUDGET_SECONDS, now).await?, device))
}

async fn measure(
    device: &Device,
    run: &RunSpec,
    budget: f64,
    now: &impl Fn() -> f64,
) -> Result<profile::Measured, String> {
    let mut measured = profile::measure(run, device, budget, now).await.map_err(|e| e.to_string())?;
    // A coarse clock may see no time pass; the planner divides by these.
    for pass in [&mut measured.layer, &mut measured.embedding] {
        pass.forward = pass.forward.max(LEAST_SECONDS);
        pass.backward = pass.backward.max(LEAST_SECONDS);
    }
    measured.head_seconds = measured.head_seconds.max(LEAST_SECONDS);
    Ok(measured)
}

#[cfg(test)]
mod tests {
    use futures::executor::block_on;

    use super::*;
    use crate::stage::tests::run;

    fn candidate(largest_buffer: Option<u64>) -> Candidate {
        Candidate { backend: Backend::Cpu, description: "test".into(), largest_buffer }
    }

    #[test]
    fn a_backend_whose_buffers_are_too_small_is_passed_over_and_named() {
        let ticks = std::cell::Cell::new(0.0);
        let now = || {
            ticks.set(ticks.get() + 1.0);
            ticks.get()
        };
        let mut devices = Devices::new(vec![candidate(Some(64)), candidate(None)], 1, 0);
        let (profile, _) = block_on(devices.fastest(&run(), now)).unwrap();
        assert_eq!(profile.device, "test");
        let mut devices = Devices::new(vec![candidate(Some(64))], 1, 0);
        let words = block_on(devices.fastest(&run(), now)).unwrap_err();
        assert_eq!(words, "Cpu: this run needs a buffer of 1 MiB, and it takes at most 1");
    }
}
