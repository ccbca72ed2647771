//! Partitions against the golden instances.

#[path = "../../coordinator/tests/golden_folder/mod.rs"]
mod golden_folder;

use control::pipeline::plan::partition::{Candidate, partition_ordered, partition_unordered};
use serde_json::Value;

struct Instance {
    layers: u32,
    workers: Vec<Candidate>,
    head: f64,
    tail: f64,
}

fn instance(json: &Value) -> Instance {
    let candidate = |w: &Value| {
        let max_layers = w["max_layers"].as_u64().expect("max_layers") as u32;
        Candidate::new(w["time"].as_f64().expect("time"), max_layers)
    };
    Instance {
        layers: json["layers"].as_u64().expect("layers") as u32,
        workers: json["workers"].as_array().expect("workers").iter().map(candidate).collect(),
        head: json["head_extra"].as_f64().expect("head_extra"),
        tail: json["tail_extra"].as_f64().expect("tail_extra"),
    }
}

/// Time of the slowest stage, from the rule of the golden README.
fn slowest(i: &Instance, stages: &[(usize, u32)]) -> f64 {
    let last = stages.len() - 1;
    let time = |(at, (worker, n)): (usize, &(usize, u32))| {
        let extra = if at == 0 { i.head } else { 0.0 } + if at == last { i.tail } else { 0.0 };
        i.workers[*worker].seconds_per_layer * (f64::from(*n) + extra)
    };
    stages.iter().enumerate().map(time).fold(0.0, f64::max)
}

fn check(i: &Instance, value: f64, golden: f64, stages: &[(usize, u32)], words: &str) {
    let close = |a: f64, b: f64| (a - b).abs() <= 1e-9 * b.abs();
    assert!(close(value, golden), "{words}: {value}, golden {golden}");
    assert!(
        close(slowest(i, stages), value),
        "{words}: the witness takes {}, not {value}",
        slowest(i, stages)
    );
    assert_eq!(stages.iter().map(|s| s.1).sum::<u32>(), i.layers, "{words}");
    assert!(stages.iter().all(|(w, n)| *n >= 1 && *n <= i.workers[*w].max_layers), "{words}: {stages:?}");
}

#[test]
fn every_golden_instance_has_its_value() {
    let golden = golden_folder::read_json("partition.json");
    let instances = golden["instances"].as_array().expect("instances");
    assert!(!instances.is_empty());
    for (number, json) in instances.iter().enumerate() {
        let i = instance(json);
        let feasible = json["feasible"].as_bool().expect("feasible");
        let ordered = partition_ordered(i.layers, &i.workers, i.head, i.tail);
        let unordered = partition_unordered(i.layers, &i.workers, i.head, i.tail);
        assert_eq!(ordered.is_some(), feasible, "instance {number}, ordered");
        assert_eq!(unordered.is_some(), feasible, "instance {number}, unordered");
        if let Some(p) = ordered {
            let stages: Vec<_> = p.layers.iter().copied().enumerate().filter(|s| s.1 > 0).collect();
            let golden = json["ordered"]["value"].as_f64().expect("value");
            check(&i, p.value, golden, &stages, &format!("instance {number}, ordered"));
        }
        if let Some(p) = unordered {
            let stages: Vec<_> = p.order.iter().copied().zip(p.layers.iter().copied()).collect();
            let mut workers = p.order.clone();
            workers.sort_unstable();
            workers.dedup();
            assert_eq!(workers.len(), p.order.len(), "instance {number}: a worker has two stages");
            let golden = json["unordered"]["value"].as_f64().expect("value");
            check(&i, p.value, golden, &stages, &format!("instance {number}, unordered"));
        }
    }
}
