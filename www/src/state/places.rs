//! Who holds which part of the model, in the order in which the parts follow each other.

use protocol::{
    spec::Hop,
    view::{BlockView, RunView, WorkerView},
};

use super::facts::block_of;

/// A position in the pipeline and who holds it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Position {
    pub(crate) hop: Hop,
    pub(crate) worker: WorkerView,
    /// Whether its device computes longest in a step.
    pub(crate) slowest: bool,
    /// Another position of the same device, from 0.
    pub(crate) also: Option<u32>,
}

/// The positions of the pipeline, in order.
pub(crate) fn positions(run: &RunView) -> Vec<Position> {
    let at_work = run.workers.iter().filter(|worker| !worker.hops.is_empty());
    let times: Vec<f64> = at_work.map(|worker| worker.timings.busy()).collect();
    let longest = times.iter().copied().fold(0.0, f64::max);
    let shortest = times.iter().copied().fold(f64::INFINITY, f64::min);
    let mut positions: Vec<Position> = Vec::new();
    for worker in &run.workers {
        for hop in &worker.hops {
            let other = worker.hops.iter().find(|other| other.index != hop.index);
            positions.push(Position {
                hop: hop.clone(),
                // Less than a tenth more is within the jitter.
                slowest: longest > 1.1 * shortest && worker.timings.busy() == longest,
                worker: worker.clone(),
                also: other.map(|other| other.index),
            });
        }
    }
    positions.sort_by_key(|position| position.hop.index);
    positions
}

/// A block and the devices that train it in the round in progress.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct BlockPlace {
    pub(crate) block: BlockView,
    pub(crate) workers: Vec<WorkerView>,
}

/// The blocks, from the strongest noise to the weakest.
pub(crate) fn blocks(run: &RunView) -> Vec<BlockPlace> {
    let Some(rounds) = &run.rounds else { return Vec::new() };
    let at = |index: u32| {
        run.workers.iter().filter(|worker| block_of(worker) == Some(index)).cloned().collect::<Vec<_>>()
    };
    (0..).zip(&rounds.blocks).map(|(index, block)| BlockPlace { block: *block, workers: at(index) }).collect()
}

#[cfg(test)]
mod tests {
    use protocol::view::Phase;

    use super::*;
    use crate::state::fixtures::{at_block, at_layers, blocks as block_run, hop, pipeline};

    #[test]
    fn positions_stand_in_order_and_the_slowest_is_marked() {
        let mut run = pipeline(Phase::Training);
        let mut slow = at_layers(1, "slow", hop(1, false, 6, 12, true));
        slow.timings.forward = 2.0;
        let mut fast = at_layers(2, "fast", hop(0, true, 0, 6, false));
        fast.timings.forward = 1.0;
        run.workers = vec![slow, fast];
        let all = positions(&run);
        let seen: Vec<_> =
            all.iter().map(|p| (p.hop.index, p.worker.name.as_str(), p.slowest, p.also)).collect();
        assert_eq!(seen, [(0, "fast", false, None), (1, "slow", true, None)]);
    }

    #[test]
    fn one_device_may_hold_both_ends() {
        let mut run = pipeline(Phase::Training);
        let mut ends = at_layers(1, "ends", hop(0, true, 0, 6, false));
        ends.hops.push(hop(2, false, 12, 12, true));
        run.workers = vec![ends];
        let also: Vec<_> = positions(&run).iter().map(|position| position.also).collect();
        assert_eq!(also, [Some(2), Some(0)]);
    }

    #[test]
    fn blocks_list_their_devices() {
        let mut run = block_run(Phase::Training);
        run.workers = vec![at_block(1, "Ada", 2), at_block(2, "Blaise", 0), at_block(3, "Charles", 2)];
        let places = blocks(&run);
        let names: Vec<Vec<&str>> = places
            .iter()
            .map(|place| place.workers.iter().map(|worker| worker.name.as_str()).collect())
            .collect();
        assert_eq!(names, [vec!["Blaise"], vec![], vec!["Ada", "Charles"]]);
    }
}
