//! Whether the parts of a snapshot can be loaded by whoever comes next, before the snapshot counts.

use control::pipeline::Manifest;
use engine::{Device, parameters::ParameterSet};
use protocol::{
    spec::{Hop, Moments, Part},
    worker_id::WorkerId,
};

/// A part that no honest worker could go on from.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct BadPart {
    /// Who gave it.
    pub(super) worker: WorkerId,
    /// What is wrong with it.
    pub(super) why: String,
}

/// Loads each part as the next worker would have to: every tensor that it must hold is there, of the right shape and
/// finite, of the step that was asked for, with AdamW's moments where the run keeps them, and all of the same number of
/// updates.
///
/// # Errors
/// The first part of which that is not so.
pub(super) fn verify_parts<B: AsRef<[u8]>>(
    manifest: &Manifest,
    moments: Moments,
    files: &[B],
) -> Result<(), BadPart> {
    let mut updates = Vec::with_capacity(files.len());
    for (part, bytes) in manifest.parts.iter().zip(files) {
        let updates_seen = verify_part(manifest, moments, &part.holds, bytes.as_ref());
        updates.push(updates_seen.map_err(|why| BadPart { worker: part.worker, why })?);
    }
    let Some(agreed) = most_common(&updates) else { return Ok(()) };
    match manifest.parts.iter().zip(&updates).find(|(_, seen)| **seen != agreed) {
        None => Ok(()),
        Some((part, seen)) => {
            let why = format!("its moments have seen {seen} updates, those of the other parts {agreed}");
            Err(BadPart { worker: part.worker, why })
        }
    }
}

/// Updates that a part's moments have seen.
fn verify_part(manifest: &Manifest, moments: Moments, holds: &[Part], bytes: &[u8]) -> Result<u64, String> {
    let hops: Vec<Hop> = (0..).zip(holds.iter().cloned()).map(|(index, part)| Hop { index, part }).collect();
    let loaded = ParameterSet::import(&manifest.model, &hops, &[bytes], &Device::Cpu);
    let loaded = loaded.map_err(|error| error.to_string())?;
    let (steps, updates, asked) = (loaded.steps_done(), loaded.adam_steps(), manifest.steps_done);
    if steps != asked {
        return Err(format!("its weights have seen {steps} steps, {asked} were asked for"));
    }
    if updates > steps {
        return Err(format!("its moments have seen {updates} updates in {steps} steps"));
    }
    match (updates, moments) {
        (0, Moments::None) | (1.., Moments::Full | Moments::F16) => Ok(updates),
        (0, _) => Err("it has no moments, and the run keeps them".into()),
        (_, Moments::None) => Err("it has moments, and the run keeps none".into()),
    }
}

/// The number that most have; of several, the largest, as a run that has kept its moments from the beginning has as many
/// updates as steps.
fn most_common(numbers: &[u64]) -> Option<u64> {
    let count = |number: &u64| numbers.iter().filter(|other| *other == number).count();
    numbers.iter().copied().max_by_key(|number| (count(number), *number))
}

#[cfg(test)]
mod tests {
    use control::pipeline::SnapshotPart;
    use futures::executor::block_on;
    use protocol::{
        blob::BlobRef,
        spec::{ModelSpec, OptimizerSpec},
    };

    use super::*;

    const OPTIMIZER: OptimizerSpec =
        OptimizerSpec { beta1: 0.9, beta2: 0.99, epsilon: 1e-8, weight_decay: 0.1, clip_norm: 1.0 };

    fn manifest() -> Manifest {
        let model =
            ModelSpec { vocabulary: 5, positions: 4, width: 4, heads: 2, layers: 2, tie_embeddings: false };
        let halves = [
            Part { embedding: true, first_layer: 0, end_layer: 1, head: false },
            Part { embedding: false, first_layer: 1, end_layer: 2, head: true },
        ];
        let parts = (1..)
            .zip(halves)
            .map(|(number, part)| SnapshotPart {
                blob: BlobRef::of(b""),
                holds: vec![part],
                worker: WorkerId(number),
            })
            .collect();
        Manifest { steps_done: 2, epoch: 1, model, micro_batches: 1, state: String::new(), parts }
    }

    /// A part after so many updates, with or without what it knew of AdamW's moments after the first.
    fn part(number: usize, updates: u64, moments: Moments, forgets: bool) -> Vec<u8> {
        let manifest = manifest();
        let hops = [Hop { index: 0, part: manifest.parts[number].holds[0].clone() }];
        let load = |file: &[u8]| ParameterSet::import(&manifest.model, &hops, &[file], &Device::Cpu).unwrap();
        let mut set = ParameterSet::draw(&manifest.model, &hops, 7, &Device::Cpu);
        for update in 0..updates {
            if forgets && update == 1 {
                set = load(&block_on(set.export(Moments::None)).unwrap());
            }
            for shape in set.shapes().to_vec() {
                set.add_gradient(&shape.name, &vec![0.1; shape.len()]).unwrap();
            }
            set.apply(1.0, 1e-2, &OPTIMIZER).unwrap();
        }
        block_on(set.export(moments)).unwrap()
    }

    fn verified(moments: Moments, files: &[Vec<u8>]) -> Result<(), (u64, String)> {
        verify_parts(&manifest(), moments, files).map_err(|BadPart { worker, why }| (worker.0, why))
    }

    #[test]
    fn parts_of_a_run_can_be_loaded_whatever_it_keeps_of_the_moments() {
        for moments in [Moments::Full, Moments::F16, Moments::None] {
            let files = [0, 1].map(|number| part(number, 2, moments, false));
            assert_eq!(verified(moments, &files), Ok(()), "{moments:?}");
        }
        // A run that kept none before has fewer updates than steps.
        let files = [0, 1].map(|number| part(number, 2, Moments::Full, true));
        assert_eq!(verified(Moments::Full, &files), Ok(()));
    }

    #[test]
    fn a_part_that_does_not_go_with_the_others_is_named_with_its_worker() {
        let good = |number| part(number, 2, Moments::Full, false);
        for (files, worker, words) in [
            ([part(0, 2, Moments::None, false), good(1)], 1, "it has no moments"),
            ([good(0), part(1, 2, Moments::None, false)], 2, "it has no moments"),
            ([good(0), part(1, 3, Moments::Full, false)], 2, "have seen 3 steps, 2 were asked for"),
            ([part(0, 2, Moments::Full, true), good(1)], 1, "seen 1 updates, those of the other parts 2"),
            ([good(0), part(0, 2, Moments::Full, false)], 2, "hold no tensor"),
        ] {
            let (named, why) = verified(Moments::Full, &files).unwrap_err();
            assert!(named == worker && why.contains(words), "{named}: {why}");
        }
        let with_moments = [good(0), good(1)];
        assert!(verified(Moments::None, &with_moments).unwrap_err().1.contains("the run keeps none"));
    }
}
