//! Partitions against brute force, and their ties.

use control::pipeline::plan::partition::{Candidate, partition_all, partition_ordered, partition_unordered};
use proptest::prelude::*;

#[derive(Debug, Clone)]
struct Instance {
    layers: u32,
    workers: Vec<Candidate>,
    head: f64,
    tail: f64,
}

fn instances() -> impl Strategy<Value = Instance> {
    // Few distinct speeds, so that ties are common; half of the links cost nothing.
    let worker = (1u32..6, 0u32..5, 0u32..3, 0u32..3, 0u32..4).prop_map(
        |(speed, max_layers, first_room, last_room, link)| Candidate {
            seconds_per_layer: f64::from(speed) * 0.25,
            max_layers,
            first_room,
            last_room,
            link_seconds: f64::from(link.saturating_sub(1)) * 0.3,
        },
    );
    (1u32..8, proptest::collection::vec(worker, 1..5), 0u32..4, 0u32..6).prop_map(
        |(layers, workers, head, tail)| Instance {
            layers,
            workers,
            head: f64::from(head) * 0.5,
            tail: f64::from(tail) * 0.5,
        },
    )
}

/// Time of the slowest of these stages: pairs of worker and layers.
fn slowest(i: &Instance, stages: &[(usize, u32)]) -> f64 {
    let mut value = 0.0f64;
    for (at, (worker, n)) in stages.iter().enumerate() {
        let head = if at == 0 { i.head } else { 0.0 };
        let tail = if at + 1 == stages.len() { i.tail } else { 0.0 };
        let neighbours = u32::from(at > 0) + u32::from(at + 1 < stages.len());
        let worker = i.workers[*worker];
        value = value.max(worker.seconds_per_layer * (f64::from(*n) + head + tail));
        value = value.max(f64::from(neighbours) * worker.link_seconds);
    }
    value
}

/// Whether each worker's memory holds its stage.
fn fits(i: &Instance, stages: &[(usize, u32)]) -> bool {
    stages.iter().enumerate().all(|(at, (worker, n))| {
        let worker = i.workers[*worker];
        let first = if at == 0 { worker.first_room } else { 0 };
        let last = if at + 1 == stages.len() { worker.last_room } else { 0 };
        n + first + last <= worker.max_layers
    })
}

/// Every way to hold the layers that `allowed` lets through, by value, number of workers and workers.
fn all(i: &Instance, allowed: &impl Fn(&[(usize, u32)]) -> bool) -> Option<(f64, usize, Vec<usize>)> {
    fn extend(
        i: &Instance,
        stages: &mut Vec<(usize, u32)>,
        left: u32,
        allowed: &impl Fn(&[(usize, u32)]) -> bool,
        best: &mut Option<(f64, usize, Vec<usize>)>,
    ) {
        if !allowed(stages) {
            return;
        }
        if left == 0 {
            if !fits(i, stages) {
                return;
            }
            let found = (slowest(i, stages), stages.len(), stages.iter().map(|s| s.0).collect::<Vec<_>>());
            if best.as_ref().is_none_or(|b| found < *b) {
                *best = Some(found);
            }
            return;
        }
        for worker in 0..i.workers.len() {
            if stages.iter().any(|s| s.0 == worker) {
                continue;
            }
            for n in 1..=left.min(i.workers[worker].max_layers) {
                stages.push((worker, n));
                extend(i, stages, left - n, allowed, best);
                stages.pop();
            }
        }
    }
    let mut best = None;
    extend(i, &mut Vec::new(), i.layers, allowed, &mut best);
    best
}

fn ascending(stages: &[(usize, u32)]) -> bool {
    stages.windows(2).all(|pair| pair[0].0 < pair[1].0)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn ordered_equals_brute_force_with_its_ties(i in instances()) {
        let found = partition_ordered(i.layers, &i.workers, i.head, i.tail);
        let best = all(&i, &ascending);
        prop_assert_eq!(found.is_some(), best.is_some());
        if let (Some(found), Some((value, count, workers))) = (found, best) {
            let used: Vec<usize> = (0..i.workers.len()).filter(|w| found.layers[*w] > 0).collect();
            prop_assert_eq!(found.value, value);
            prop_assert_eq!(used.len(), count, "fewest workers");
            prop_assert_eq!(used, workers, "lowest-numbered workers");
            prop_assert_eq!(found.layers.iter().sum::<u32>(), i.layers);
        }
    }

    #[test]
    fn unordered_equals_brute_force(i in instances()) {
        let found = partition_unordered(i.layers, &i.workers, i.head, i.tail);
        let best = all(&i, &|_| true);
        prop_assert_eq!(found.is_some(), best.is_some());
        if let (Some(found), Some((value, count, workers))) = (found, best) {
            let stages: Vec<_> = found.order.iter().copied().zip(found.layers.iter().copied()).collect();
            prop_assert_eq!(found.value, value);
            prop_assert_eq!(slowest(&i, &stages), value);
            prop_assert_eq!(stages.len(), count, "fewest workers");
            prop_assert_eq!(stages[0].0, workers[0], "lowest-numbered head");
            prop_assert_eq!(found.layers.iter().sum::<u32>(), i.layers);
            prop_assert!(fits(&i, &stages) && stages.iter().all(|(_, n)| *n >= 1));
        }
    }

    #[test]
    fn all_workers_equals_brute_force(i in instances()) {
        let found = partition_all(i.layers, &i.workers, i.head, i.tail);
        let everyone = i.workers.len();
        let all_of_them = |stages: &[(usize, u32)]| {
            let layers: u32 = stages.iter().map(|s| s.1).sum();
            ascending(stages) && (layers < i.layers || stages.len() == everyone)
        };
        let best = all(&i, &all_of_them);
        prop_assert_eq!(found.as_ref().map(|p| p.value), best.map(|b| b.0));
        if let Some(found) = found {
            prop_assert!(found.layers.iter().all(|n| *n > 0));
            prop_assert_eq!(found.layers.iter().sum::<u32>(), i.layers);
        }
    }

    #[test]
    fn any_order_is_at_least_as_good(i in instances()) {
        let ordered = partition_ordered(i.layers, &i.workers, i.head, i.tail);
        let unordered = partition_unordered(i.layers, &i.workers, i.head, i.tail);
        if let (Some(ordered), Some(unordered)) = (ordered, unordered) {
            prop_assert!(unordered.value <= ordered.value);
        }
    }
}

#[test]
fn faster_workers_get_more_layers_and_equal_ones_equal_shares() {
    let worker = |seconds_per_layer| Candidate::new(seconds_per_layer, 12);
    let found = partition_ordered(12, &[worker(1.0), worker(2.0), worker(1.0)], 0.0, 0.0).expect("fits");
    assert_eq!(found.layers, [5, 2, 5]);
    let found = partition_ordered(12, &[worker(1.0); 3], 0.0, 0.0).expect("fits");
    assert_eq!(found.layers, [4, 4, 4]);
}

#[test]
fn what_cannot_be_used_is_left_out() {
    let good = Candidate::new(1.0, 3);
    let broken =
        [f64::NAN, f64::INFINITY, -1.0].map(|seconds_per_layer| Candidate { seconds_per_layer, ..good });
    let full = Candidate { max_layers: 0, ..good };
    let workers = [broken[0], good, full, broken[1], good, broken[2]];
    let found = partition_ordered(4, &workers, 0.0, 0.0).expect("fits");
    assert_eq!(found.layers, [0, 2, 0, 0, 2, 0]);
    let found = partition_unordered(4, &workers, 0.0, 0.0).expect("fits");
    assert_eq!((found.order, found.layers), (vec![1, 4], vec![2, 2]));
    assert_eq!(partition_all(4, &workers, 0.0, 0.0), None);
    assert_eq!(partition_ordered(7, &workers, 0.0, 0.0), None);
    assert_eq!(partition_ordered(0, &workers, 0.0, 0.0), None);
    assert_eq!(partition_ordered(4, &[], 0.0, 0.0), None);
    assert_eq!(partition_ordered(4, &workers, f64::NAN, 0.0), None);
}

#[test]
fn two_hundred_workers_and_sixty_four_layers_are_partitioned() {
    let workers: Vec<Candidate> =
        (0..200u32).map(|w| Candidate::new(0.1 + f64::from(w * 7919 % 1009) / 1000.0, 1 + w % 5)).collect();
    let ordered = partition_ordered(64, &workers, 1.5, 3.25).expect("fits");
    let unordered = partition_unordered(64, &workers, 1.5, 3.25).expect("fits");
    assert_eq!(ordered.layers.iter().sum::<u32>(), 64);
    assert_eq!(unordered.layers.iter().sum::<u32>(), 64);
    assert!(unordered.value <= ordered.value);
    // Nobody can beat the fastest worker holding one layer.
    assert!(unordered.value >= 0.1);
}
