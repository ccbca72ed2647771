//! Ways to cut a model into stages.

use protocol::spec::{Hop, ModelSpec, Part};

/// Which splits are checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Splits {
    /// Every composition of the layers, the ends also without any.
    Every,
    /// The first and the last of those, per number of stages.
    Two,
}

/// How much is checked. A software GPU is slow; a CPU checks everything.
#[derive(Debug, Clone, PartialEq)]
pub struct Scope {
    /// Most stages of a split, beside the undivided model.
    pub stages: u32,
    /// Which of the splits into so many stages.
    pub splits: Splits,
    /// With activations saved, computed again, or both.
    pub recompute: Vec<bool>,
}

impl Scope {
    /// Every split into up to four stages, both ways of going back.
    pub fn full() -> Self {
        Scope { stages: 4, splits: Splits::Every, recompute: vec![false, true] }
    }
}

/// A split: the hops of each worker.
pub(super) type Workers = Vec<Vec<Hop>>;

/// All splits in scope, the undivided model first.
pub(super) fn all(model: &ModelSpec, scope: &Scope) -> Vec<Workers> {
    let mut splits = vec![vec![vec![Hop { index: 0, part: model.whole() }]]];
    for stages in 1..=scope.stages {
        let some = of(model, stages);
        match (scope.splits, some.len()) {
            (Splits::Two, 3..) => {
                splits.extend(some.first().cloned());
                splits.extend(some.last().cloned());
            }
            _ => splits.extend(some),
        }
    }
    splits
}

/// All splits into `stages` workers. Untied, each has one part. Tied, the first worker has the head as a part
/// of its own at the end of the pipeline, even when there is only one worker.
fn of(model: &ModelSpec, stages: u32) -> Vec<Workers> {
    let tied = model.tie_embeddings;
    if stages == 1 && !tied {
        return Vec::new();
    }
    let counts = compositions(model.layers, stages, |stage| {
        let first = stage == 0;
        let last_has_head = stage + 1 == stages && !tied;
        u32::from(!(first || last_has_head))
    });
    counts.iter().map(|counts| workers(model, counts)).collect()
}

fn workers(model: &ModelSpec, counts: &[u32]) -> Workers {
    let mut first_layer = 0;
    let mut workers = Vec::new();
    for (stage, count) in (0..).zip(counts) {
        let end_layer = first_layer + count;
        let head = !model.tie_embeddings && stage as usize + 1 == counts.len();
        let part = Part { embedding: stage == 0, first_layer, end_layer, head };
        workers.push(vec![Hop { index: stage, part }]);
        first_layer = end_layer;
    }
    if model.tie_embeddings {
        let part = Part { embedding: false, first_layer: model.layers, end_layer: model.layers, head: true };
        workers[0].push(Hop { index: counts.len() as u32, part });
    }
    workers
}

/// All ways to write `total` as an ordered sum of `terms` numbers, number i being `least(i)` or more.
fn compositions(total: u32, terms: u32, least: impl Fn(u32) -> u32 + Copy) -> Vec<Vec<u32>> {
    if terms == 0 {
        return if total == 0 { vec![Vec::new()] } else { Vec::new() };
    }
    let mut all = Vec::new();
    for last in least(terms - 1)..=total {
        for mut rest in compositions(total - last, terms - 1, least) {
            rest.push(last);
            all.push(rest);
        }
    }
    all
}

/// For people: layers per hop, by worker.
pub(super) fn describe(workers: &Workers) -> String {
    let worker = |hops: &Vec<Hop>| {
        let hops: Vec<String> = hops
            .iter()
            .map(|Hop { part, .. }| {
                let embedding = if part.embedding { "E " } else { "" };
                let head = if part.head { " H" } else { "" };
                format!("{embedding}{}..{}{head}", part.first_layer, part.end_layer)
            })
            .collect();
        hops.join(" and ")
    };
    format!("[{}]", workers.iter().map(worker).collect::<Vec<_>>().join(" | "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(layers: u32, tie_embeddings: bool) -> ModelSpec {
        ModelSpec { vocabulary: 8, positions: 4, width: 4, heads: 2, layers, tie_embeddings }
    }

    #[test]
    fn every_untied_split_is_there() {
        let splits: Vec<String> = all(&model(2, false), &Scope::full()).iter().map(describe).collect();
        assert_eq!(
            splits,
            [
                "[E 0..2 H]",
                "[E 0..2 | 2..2 H]",
                "[E 0..1 | 1..2 H]",
                "[E 0..0 | 0..2 H]",
                "[E 0..1 | 1..2 | 2..2 H]",
                "[E 0..0 | 0..2 | 2..2 H]",
                "[E 0..0 | 0..1 | 1..2 H]",
                "[E 0..0 | 0..1 | 1..2 | 2..2 H]",
            ]
        );
    }

    #[test]
    fn every_tied_split_comes_back_to_the_first_worker() {
        let splits: Vec<String> = all(&model(2, true), &Scope::full()).iter().map(describe).collect();
        assert_eq!(
            splits,
            [
                "[E 0..2 H]",
                "[E 0..2 and 2..2 H]",
                "[E 0..1 and 2..2 H | 1..2]",
                "[E 0..0 and 2..2 H | 0..2]",
                "[E 0..0 and 2..2 H | 0..1 | 1..2]",
            ]
        );
    }
}
