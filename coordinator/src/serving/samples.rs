//! What the model wrote at several ages after the same words: kept in the run's folder, and thinned as it grows.

use std::path::{Path, PathBuf};

use protocol::serving::{Sample, Samples};

use crate::storage::write_atomically;

/// How many are kept.
const MOST: usize = 48;
/// A new one is written when the model is older by this factor.
const OLDER: f64 = 1.2;

/// The samples, and where they are kept.
#[derive(Debug)]
pub(super) struct Kept {
    path: PathBuf,
    pub(super) samples: Samples,
}

impl Kept {
    /// What is kept at this path of texts after this prompt. A file that cannot be read is no reason not to serve.
    pub(super) fn read(path: &Path, prompt: &str) -> Self {
        let samples =
            std::fs::read(path).ok().and_then(|bytes| serde_json::from_slice::<Samples>(&bytes).ok());
        let samples = samples
            .filter(|samples| samples.prompt == prompt)
            .unwrap_or_else(|| Samples { prompt: prompt.to_owned(), samples: vec![] });
        Self { path: path.to_owned(), samples }
    }

    /// Whether the model should write one at this age.
    pub(super) fn wants(&self, step: u64) -> bool {
        self.samples.samples.last().is_none_or(|last| step as f64 >= last.step as f64 * OLDER)
    }

    /// Keeps a sample. One of a step that is done again takes the place of the old, and of those after it.
    pub(super) fn add(&mut self, sample: Sample) -> std::io::Result<()> {
        self.samples.samples.retain(|old| old.step < sample.step);
        self.samples.samples.push(sample);
        thin(&mut self.samples.samples);
        write_atomically(&self.path, &serde_json::to_vec_pretty(&self.samples)?)
    }
}

/// Removes what is missed least: of three neighbours whose ages are closest to each other the one in the middle.
fn thin(samples: &mut Vec<Sample>) {
    while samples.len() > MOST {
        let ratio = |at: usize| samples[at + 1].step as f64 / samples[at - 1].step.max(1) as f64;
        let closest = (1..samples.len() - 1).min_by(|a, b| ratio(*a).total_cmp(&ratio(*b)));
        if let Some(index) = closest {
            samples.remove(index);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(step: u64) -> Sample {
        Sample { step, text: format!("of {step}") }
    }

    #[test]
    fn samples_are_kept_thinned_and_come_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("samples.json");
        let mut kept = Kept::read(&path, "\n");
        assert!(kept.wants(0));
        for step in (20..4000).step_by(20) {
            kept.add(sample(step)).unwrap();
        }
        assert!(!kept.wants(4000) && kept.wants(5000));
        let steps: Vec<u64> = kept.samples.samples.iter().map(|sample| sample.step).collect();
        assert_eq!((steps.len(), steps[0], steps[MOST - 1]), (MOST, 20, 3980));
        assert!(steps.windows(2).all(|pair| pair[0] < pair[1] && pair[1] <= 2 * pair[0]), "{steps:?}");
        assert_eq!(Kept::read(&path, "\n").samples, kept.samples);
        assert!(Kept::read(&path, "other words").samples.samples.is_empty());
        kept.add(sample(100)).unwrap();
        assert!(
            kept.samples.samples.iter().all(|sample| sample.step <= 100),
            "a run went back to a snapshot"
        );
    }
}
