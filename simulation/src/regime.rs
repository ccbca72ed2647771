//! Who takes part and over what links, as distributions.

use crate::{
    chance::{even, log_normal},
    network::Link,
};

/// What a worker can do.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Speed {
    /// Seconds of a local step.
    pub step_seconds: f64,
    /// Seconds of one way, of an empty frame.
    pub latency: f64,
    /// Bytes per second from the coordinator.
    pub down: f64,
    /// Bytes per second to the coordinator.
    pub up: f64,
}

impl Speed {
    /// Its link.
    pub fn link(&self) -> Link {
        Link { latency: self.latency, up: self.up, down: self.down }
    }

    /// Seconds from the opening of a round to its delta, with so many bytes down and up, and computing and the link so
    /// many times as slow: frames go one way each, two files down and one up, each with its request.
    pub(crate) fn round_seconds(&self, bytes: [u64; 2], steps: u32, compute: f64, link: f64) -> f64 {
        let [down, up] = bytes.map(|bytes| bytes as f64);
        let way = 8.0 * self.latency + down / self.down + up / self.up;
        link * way + compute * f64::from(steps) * self.step_seconds
    }
}

/// Distributions of workers. Each quantity of a worker is its median times a log-normal factor.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Regime {
    /// Its name on the command line.
    pub name: &'static str,
    /// What a worker in the middle can do.
    pub median: Speed,
    /// Deviation of the logarithm between workers: of the step's seconds, ...
    pub step_spread: f64,
    /// ... and of latency and bandwidths.
    pub link_spread: f64,
    /// Deviation of the logarithm from round to round, of one worker's computing and link.
    pub jitter: f64,
    /// Share of the rounds for which a worker is away: half of those times it disconnects and comes back anew, half of
    /// them it stays connected and brings nothing.
    pub dropout: f64,
    /// The fixed deadline, in arrivals of a median worker without jitter.
    pub deadline: f64,
}

const KB: f64 = 1e3;
const MB: f64 = 1e6;

const WAN: Regime = Regime {
    name: "wan-mid",
    median: Speed { step_seconds: 0.25, latency: 0.04, down: 6.0 * MB, up: 1.2 * MB },
    step_spread: 0.3,
    link_spread: 0.5,
    jitter: 0.2,
    dropout: 0.05,
    deadline: 1.4,
};

const BAD_EDGE: Regime = Regime {
    name: "bad-edge",
    median: Speed { step_seconds: 0.9, latency: 0.15, down: 800.0 * KB, up: 200.0 * KB },
    step_spread: 0.5,
    link_spread: 0.7,
    jitter: 0.4,
    dropout: 0.25,
    deadline: 1.2,
};

/// The regimes of BlockTrain's tables by name. Its parameters could not be had: these are chosen to be plausible.
///
/// | regime | who | step, s | spread | latency, ms | down, MB/s | up, MB/s | spread | jitter | away | deadline |
/// |---|---|---|---|---|---|---|---|---|---|---|
/// | lockstep | equal machines in one rack | 0.25 | 0 | 0.5 | 125 | 125 | 0 | 0 | 0 | 4 |
/// | mild | desktops in one office | 0.25 | 0.1 | 5 | 12.5 | 12.5 | 0.2 | 0.1 | 0.02 | 2.5 |
/// | wan-tight | laptops on home broadband | 0.25 | 0.3 | 40 | 6 | 1.2 | 0.5 | 0.2 | 0.05 | 1.0 |
/// | wan-mid | the same | 0.25 | 0.3 | 40 | 6 | 1.2 | 0.5 | 0.2 | 0.05 | 1.4 |
/// | wan-loose | the same | 0.25 | 0.3 | 40 | 6 | 1.2 | 0.5 | 0.2 | 0.05 | 2.5 |
/// | edge-mid | phones and laptops on mobile networks | 0.5 | 0.4 | 80 | 2 | 0.5 | 0.6 | 0.3 | 0.12 | 1.4 |
/// | bad-edge | old phones on bad networks | 0.9 | 0.5 | 150 | 0.8 | 0.2 | 0.7 | 0.4 | 0.25 | 1.2 |
/// | bad-edge-loose | the same | 0.9 | 0.5 | 150 | 0.8 | 0.2 | 0.7 | 0.4 | 0.25 | 3 |
pub const REGIMES: [Regime; 8] = [
    Regime {
        name: "lockstep",
        median: Speed { step_seconds: 0.25, latency: 5e-4, down: 125.0 * MB, up: 125.0 * MB },
        step_spread: 0.0,
        link_spread: 0.0,
        jitter: 0.0,
        dropout: 0.0,
        deadline: 4.0,
    },
    Regime {
        name: "mild",
        median: Speed { step_seconds: 0.25, latency: 5e-3, down: 12.5 * MB, up: 12.5 * MB },
        step_spread: 0.1,
        link_spread: 0.2,
        jitter: 0.1,
        dropout: 0.02,
        deadline: 2.5,
    },
    Regime { name: "wan-tight", deadline: 1.0, ..WAN },
    WAN,
    Regime { name: "wan-loose", deadline: 2.5, ..WAN },
    Regime {
        name: "edge-mid",
        median: Speed { step_seconds: 0.5, latency: 0.08, down: 2.0 * MB, up: 500.0 * KB },
        step_spread: 0.4,
        link_spread: 0.6,
        jitter: 0.3,
        dropout: 0.12,
        deadline: 1.4,
    },
    BAD_EDGE,
    Regime { name: "bad-edge-loose", deadline: 3.0, ..BAD_EDGE },
];

impl Regime {
    /// The regime of this name.
    pub fn named(name: &str) -> Option<Regime> {
        REGIMES.into_iter().find(|regime| regime.name == name)
    }

    /// Every worker alike, on time, and always there.
    pub fn constant(speed: Speed, deadline: f64) -> Regime {
        Regime {
            name: "constant",
            median: speed,
            step_spread: 0.0,
            link_spread: 0.0,
            jitter: 0.0,
            dropout: 0.0,
            deadline,
        }
    }

    /// What each of so many workers can do. Regimes that differ by their deadline alone have the same workers.
    pub fn speeds(&self, workers: u32, seed: u64) -> Vec<Speed> {
        let Speed { step_seconds, latency, down, up } = self.median;
        let speed = |worker: u32| {
            let factor = |spread, what| log_normal(spread, &[seed, u64::from(worker), what]);
            Speed {
                step_seconds: step_seconds * factor(self.step_spread, 1),
                latency: latency * factor(self.link_spread, 2),
                down: down * factor(self.link_spread, 3),
                up: up * factor(self.link_spread, 4),
            }
        };
        (0..workers).map(speed).collect()
    }

    /// How a worker fares in a round; `turn` counts those it is given.
    pub(crate) fn fortune(&self, seed: u64, worker: u64, turn: u64) -> Fortune {
        let keys = |what| [seed, worker, 1 << 32 | turn, what];
        let away = even(&keys(1)) < self.dropout;
        Fortune {
            compute: log_normal(self.jitter, &keys(2)),
            link: log_normal(self.jitter, &keys(3)),
            away: away.then(|| {
                if even(&keys(4)) < 0.5 { Away::Gone { after: even(&keys(5)) } } else { Away::Silent }
            }),
        }
    }
}

/// One worker's luck in one round.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Fortune {
    /// Factors of the seconds of computing and of everything on the link.
    pub compute: f64,
    pub link: f64,
    pub away: Option<Away>,
}

/// How a worker is away.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Away {
    /// It disconnects after this share of its work, and comes back as long after that as the work would have taken.
    Gone { after: f64 },
    /// It is there and brings nothing.
    Silent,
}
