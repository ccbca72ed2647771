//! Whose text is written next: events in, decisions out, without clock or model.
//!
//! Addresses take turns, so that nobody who asks for many texts keeps others waiting. A text that does not fit into what is
//! left of the memory waits, and those behind it with it: else small ones could pass it for ever.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

use crate::address::Address;

/// A text that has been asked for.
pub(crate) type Number = u64;

/// How much is written at a time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Most {
    /// Texts that are written at a time.
    pub(crate) at_once: usize,
    /// Texts that wait.
    pub(crate) waiting: usize,
    /// Bytes of keys and values of all that are written.
    pub(crate) bytes: u64,
}

#[derive(Debug, Clone, Copy)]
struct Waiting {
    number: Number,
    address: Address,
    bytes: u64,
}

/// Who waits, and whose text is being written.
#[derive(Debug)]
pub(crate) struct Queue {
    most: Most,
    /// In the order in which they came.
    waiting: VecDeque<Waiting>,
    /// Bytes of each text that is being written.
    written: BTreeMap<Number, u64>,
    /// When an address had its last turn; those that have had none since anybody waited are not there.
    turns: HashMap<Address, u64>,
    turn: u64,
}

/// There is no more room to wait.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Full;

impl Queue {
    pub(crate) fn new(most: Most) -> Self {
        Self { most, waiting: VecDeque::new(), written: BTreeMap::new(), turns: HashMap::new(), turn: 0 }
    }

    /// Lets texts wait, all of them or none.
    ///
    /// # Errors
    /// [`Full`].
    pub(crate) fn enter(&mut self, address: Address, texts: &[(Number, u64)]) -> Result<(), Full> {
        let free = self.most.at_once.saturating_sub(self.written.len());
        if self.waiting.len() + texts.len() > self.most.waiting + free {
            return Err(Full);
        }
        // Nobody who comes with many takes all places, however long each text takes.
        let own = self.waiting.iter().filter(|waiting| waiting.address == address).count();
        if address != Address::Local && own + texts.len() > self.most.waiting.div_ceil(2) + free {
            return Err(Full);
        }
        self.waiting.extend(texts.iter().map(|(number, bytes)| Waiting {
            number: *number,
            address,
            bytes: *bytes,
        }));
        Ok(())
    }

    /// A text is finished, or nobody wants it any more.
    pub(crate) fn leave(&mut self, number: Number) {
        self.written.remove(&number);
        self.waiting.retain(|waiting| waiting.number != number);
        if self.waiting.is_empty() {
            self.turns.clear();
        }
    }

    /// The next text to be written, if there is room for it.
    pub(crate) fn next(&mut self) -> Option<Number> {
        let index = next_of(&self.waiting, &self.turns)?;
        let Waiting { number, address, bytes } = self.waiting[index];
        let taken: u64 = self.written.values().sum();
        // One alone is let in whatever it takes: it would wait for ever.
        let fits = self.written.is_empty() || taken.saturating_add(bytes) <= self.most.bytes;
        if self.written.len() >= self.most.at_once || !fits {
            return None;
        }
        self.waiting.remove(index);
        self.turn += 1;
        self.turns.insert(address, self.turn);
        self.written.insert(number, bytes);
        Some(number)
    }

    /// The texts that wait, in the order of their turns.
    pub(crate) fn places(&self) -> Vec<Number> {
        let (mut waiting, mut turns, mut turn) = (self.waiting.clone(), self.turns.clone(), self.turn);
        let mut order = Vec::with_capacity(waiting.len());
        while let Some(index) = next_of(&waiting, &turns) {
            if let Some(Waiting { number, address, .. }) = waiting.remove(index) {
                turn += 1;
                turns.insert(address, turn);
                order.push(number);
            }
        }
        order
    }

    /// How many wait.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }
}

/// The first text of the address whose last turn is longest ago.
fn next_of(waiting: &VecDeque<Waiting>, turns: &HashMap<Address, u64>) -> Option<usize> {
    let mut seen = HashSet::new();
    let firsts = waiting.iter().enumerate().filter(|(_, waiting)| seen.insert(waiting.address));
    let by_turn = firsts.min_by_key(|(index, waiting)| (turns.get(&waiting.address).copied(), *index));
    by_turn.map(|(index, _)| index)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use proptest::{collection::vec, prelude::*};

    use super::*;

    fn address(number: u8) -> Address {
        Address::V4(Ipv4Addr::new(10, 0, 0, number))
    }

    fn queue(at_once: usize, waiting: usize, bytes: u64) -> Queue {
        Queue::new(Most { at_once, waiting, bytes })
    }

    #[test]
    fn addresses_take_turns() {
        let mut queue = queue(1, 10, 100);
        queue.enter(address(1), &[(1, 1), (2, 1), (3, 1)]).unwrap();
        queue.enter(address(2), &[(4, 1)]).unwrap();
        assert_eq!(queue.places(), [1, 4, 2, 3]);
        assert_eq!(queue.next(), Some(1));
        assert_eq!(queue.next(), None, "one at a time");
        assert_eq!(queue.places(), [4, 2, 3]);
        queue.leave(1);
        assert_eq!(queue.next(), Some(4));
    }

    #[test]
    fn what_does_not_fit_waits_and_nobody_passes_it() {
        let mut queue = queue(4, 10, 100);
        queue.enter(address(1), &[(1, 60)]).unwrap();
        queue.enter(address(2), &[(2, 50)]).unwrap();
        queue.enter(address(3), &[(3, 10)]).unwrap();
        assert_eq!((queue.next(), queue.next()), (Some(1), None));
        queue.leave(1);
        assert_eq!((queue.next(), queue.next()), (Some(2), Some(3)));
        queue.enter(address(4), &[(4, 1000)]).unwrap();
        assert_eq!(queue.next(), None);
        queue.leave(2);
        queue.leave(3);
        assert_eq!(queue.next(), Some(4), "alone");
    }

    #[test]
    fn there_is_an_end_to_waiting_and_room_again_once_somebody_leaves() {
        let mut queue = queue(2, 3, 100);
        queue.enter(address(1), &[(1, 1), (2, 1), (3, 1), (4, 1)]).unwrap();
        assert_eq!(queue.enter(address(2), &[(5, 1), (6, 1)]), Err(Full), "both or none");
        queue.enter(address(2), &[(5, 1)]).unwrap();
        assert_eq!(queue.enter(address(2), &[(6, 1)]), Err(Full));
        queue.leave(3);
        queue.enter(address(2), &[(6, 1)]).unwrap();
    }

    #[test]
    fn one_address_cannot_take_all_places() {
        let mut queue = queue(1, 4, 100);
        queue.enter(address(1), &[(1, 1), (2, 1), (3, 1)]).unwrap();
        assert_eq!(queue.enter(address(1), &[(4, 1)]), Err(Full));
        queue.enter(address(2), &[(5, 1)]).unwrap();
    }

    #[derive(Debug, Clone)]
    enum Move {
        Enter(u8, u64),
        Leave(usize),
        Next,
    }

    proptest! {
        /// Whatever happens: within the limits, each text once, and in the order that was told.
        #[test]
        fn every_text_has_its_turn(moves in vec(prop_oneof![
            (0..4u8, 0..80u64).prop_map(|(of, bytes)| Move::Enter(of, bytes)),
            (0..99usize).prop_map(Move::Leave),
            Just(Move::Next),
        ], 0..200)) {
            let mut queue = queue(3, 8, 100);
            let (mut number, mut waiting, mut written) = (0, HashSet::new(), Vec::new());
            for step in moves {
                match step {
                    Move::Enter(of, bytes) => {
                        number += 1;
                        if queue.enter(address(of), &[(number, bytes)]).is_ok() {
                            waiting.insert(number);
                        }
                    }
                    Move::Leave(index) if !written.is_empty() => {
                        queue.leave(written.swap_remove(index % written.len()));
                    }
                    Move::Leave(_) => {}
                    Move::Next => {
                        let told = queue.places().first().copied();
                        if let Some(next) = queue.next() {
                            prop_assert_eq!(told, Some(next));
                            prop_assert!(waiting.remove(&next));
                            written.push(next);
                        }
                    }
                }
                prop_assert!(written.len() <= 3);
                prop_assert!(waiting.len() <= 8 + 3 - written.len().min(3));
                prop_assert_eq!(queue.waiting(), waiting.len());
                let mut places = queue.places();
                places.sort_unstable();
                let mut all: Vec<_> = waiting.iter().copied().collect();
                all.sort_unstable();
                prop_assert_eq!(places, all);
            }
            // Once everybody has left, those who still wait come in one after the other.
            while let Some(next) = { written.drain(..).for_each(|text| queue.leave(text)); queue.next() } {
                prop_assert!(waiting.remove(&next));
                written.push(next);
            }
            prop_assert!(waiting.is_empty());
        }
    }
}
