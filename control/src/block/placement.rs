//! Who trains which block.

use std::collections::BTreeMap;

use protocol::worker_id::WorkerId;

/// A worker to be placed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Candidate {
    /// The worker.
    pub worker: WorkerId,
    /// Seconds that a round takes it.
    pub seconds: f64,
    /// The block it has AdamW's moments for.
    pub holds: Option<u32>,
    /// Rounds that it has had it.
    pub rounds_held: u64,
}

/// With fewer workers than blocks, a worker stays at its block until another is this many updates behind: whoever
/// changes blocks begins with empty moments.
const TURNS: u64 = 4;

/// A block for every worker. With at least as many workers as blocks each block has one, and no block has two more
/// than another; with fewer, the blocks take turns. Whoever can stays where it is.
///
/// `updates` are the rounds that changed each block.
pub fn place(candidates: &[Candidate], updates: &[u64]) -> BTreeMap<WorkerId, u32> {
    if candidates.is_empty() || updates.is_empty() {
        return BTreeMap::new();
    }
    if candidates.len() < updates.len() {
        take_turns(candidates, updates)
    } else {
        spread(candidates, updates.len())
    }
}

fn take_turns(candidates: &[Candidate], updates: &[u64]) -> BTreeMap<WorkerId, u32> {
    let held = |block: u32| candidates.iter().any(|c| c.holds == Some(block));
    let mut blocks: Vec<u32> = (0..updates.len() as u32).collect();
    blocks.sort_by_key(|&block| {
        let bonus = if held(block) { 0 } else { TURNS };
        (updates[block as usize] + bonus, block)
    });
    blocks.truncate(candidates.len());
    let mut placed = BTreeMap::new();
    for candidate in candidates {
        if let Some(at) = candidate.holds.and_then(|holds| blocks.iter().position(|&block| block == holds)) {
            placed.insert(candidate.worker, blocks.remove(at));
        }
    }
    let rest: Vec<WorkerId> =
        candidates.iter().map(|c| c.worker).filter(|worker| !placed.contains_key(worker)).collect();
    placed.extend(rest.into_iter().zip(blocks));
    placed
}

fn spread(candidates: &[Candidate], blocks: usize) -> BTreeMap<WorkerId, u32> {
    let mut at: Vec<Vec<Candidate>> = vec![Vec::new(); blocks];
    let mut new = Vec::new();
    for candidate in candidates {
        match candidate.holds {
            Some(block) if (block as usize) < blocks => at[block as usize].push(*candidate),
            _ => new.push(*candidate),
        }
    }
    let speed = |replicas: &[Candidate]| replicas.iter().map(|c| 1.0 / c.seconds.max(1e-9)).sum::<f64>();
    let fewest = |at: &[Vec<Candidate>]| {
        let mut order: Vec<usize> = (0..blocks).collect();
        order.sort_by(|&a, &b| {
            let count = at[a].len().cmp(&at[b].len());
            count.then(speed(&at[a]).total_cmp(&speed(&at[b]))).then(a.cmp(&b))
        });
        (order[0], order[blocks - 1])
    };
    // The fastest first, each to the block that has the least.
    new.sort_by(|a, b| a.seconds.total_cmp(&b.seconds).then(a.worker.cmp(&b.worker)));
    for candidate in new {
        let (least, _) = fewest(&at);
        at[least].push(candidate);
    }
    loop {
        let (least, most) = fewest(&at);
        if at[least].len() + 1 >= at[most].len() {
            break;
        }
        // Whoever has been there for the shortest time has the least to lose.
        let moved = at[most]
            .iter()
            .enumerate()
            .min_by(|(_, a), (_, b)| a.rounds_held.cmp(&b.rounds_held).then(b.worker.cmp(&a.worker)))
            .map(|(index, _)| index);
        let Some(moved) = moved else { break };
        let candidate = at[most].remove(moved);
        at[least].push(candidate);
    }
    at.iter()
        .zip(0..)
        .flat_map(|(replicas, block)| replicas.iter().map(move |candidate| (candidate.worker, block)))
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    fn candidates() -> impl Strategy<Value = Vec<Candidate>> {
        vec((0.1..10.0f64, proptest::option::of(0..8u32), 0..20u64), 1..30).prop_map(|all| {
            let candidate = |(worker, (seconds, holds, rounds_held))| Candidate {
                worker: WorkerId(worker),
                seconds,
                holds,
                rounds_held,
            };
            (1..).zip(all).map(candidate).collect()
        })
    }

    proptest! {
        #[test]
        fn everybody_has_a_block_and_blocks_are_even(all in candidates(), updates in vec(0..50u64, 1..8)) {
            let placed = place(&all, &updates);
            prop_assert_eq!(placed.len(), all.len());
            let count = |block: u32| placed.values().filter(|b| **b == block).count();
            let counts: Vec<usize> = (0..updates.len() as u32).map(count).collect();
            prop_assert_eq!(counts.iter().sum::<usize>(), all.len());
            let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
            prop_assert!(most - least <= 1);
            // Placed again with the blocks they got, all stay: nobody is moved for nothing.
            let settled: Vec<Candidate> =
                all.iter().map(|c| Candidate { holds: placed.get(&c.worker).copied(), ..*c }).collect();
            if all.len() >= updates.len() {
                prop_assert_eq!(place(&settled, &updates), placed);
            }
        }
    }

    #[test]
    fn fewer_workers_than_blocks_take_turns() {
        let mut updates = [0u64; 5];
        let mut holds = [None; 2];
        let mut moves = 0;
        for _ in 0..100 {
            let all: Vec<Candidate> = holds
                .iter()
                .zip(1..)
                .map(|(&holds, n)| Candidate { worker: WorkerId(n), seconds: 1.0, holds, rounds_held: 1 })
                .collect();
            for (worker, block) in place(&all, &updates) {
                let held = &mut holds[worker.0 as usize - 1];
                moves += u32::from(held.is_some_and(|held| held != block));
                *held = Some(block);
                updates[block as usize] += 1;
            }
        }
        let (least, most) = (updates.iter().min().unwrap(), updates.iter().max().unwrap());
        assert!(most - least <= TURNS + 1, "{updates:?}");
        assert!(moves < 60, "{moves} of 200 times somebody began anew");
    }

    #[test]
    fn the_fast_ones_do_not_all_go_to_one_block() {
        let new =
            |worker, seconds| Candidate { worker: WorkerId(worker), seconds, holds: None, rounds_held: 0 };
        let placed = place(&[new(1, 1.0), new(2, 1.0), new(3, 9.0), new(4, 9.0)], &[0, 0]);
        assert_ne!(placed[&WorkerId(1)], placed[&WorkerId(2)]);
        assert_ne!(placed[&WorkerId(3)], placed[&WorkerId(4)]);
    }
}
