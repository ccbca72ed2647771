//! Places for those of whom nothing has come yet. When there are too many, the oldest gives way: of the address that has
//! the most, so that nobody who comes with many pushes out those who come alone.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio_util::sync::CancellationToken;

use crate::address::Address;

/// The places.
#[derive(Debug)]
pub(crate) struct Places {
    /// Of one address other than this computer's.
    each: usize,
    all: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    next: u64,
    count: usize,
    /// In the order in which they were taken.
    of: HashMap<Address, BTreeMap<u64, CancellationToken>>,
}

impl Taken {
    fn remove(&mut self, address: Address, number: Option<u64>) -> Option<CancellationToken> {
        let places = self.of.get_mut(&address)?;
        let removed = match number {
            Some(number) => places.remove(&number),
            None => places.pop_first().map(|(_, token)| token),
        };
        if places.is_empty() {
            self.of.remove(&address);
        }
        self.count -= usize::from(removed.is_some());
        removed
    }
}

impl Places {
    pub(crate) fn new(each: usize, all: usize) -> Arc<Self> {
        Arc::new(Self { each, all, taken: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place until the value is dropped; `token` is cancelled when it has to give way.
    pub(super) fn take(self: &Arc<Self>, address: Address, token: CancellationToken) -> Place {
        let mut taken = self.lock();
        taken.next += 1;
        taken.count += 1;
        let number = taken.next;
        let places = taken.of.entry(address).or_default();
        places.insert(number, token);
        let crowded = address != Address::Local && places.len() > self.each;
        let gives_way = if crowded {
            Some(address)
        } else if taken.count > self.all {
            taken.of.iter().max_by_key(|(_, places)| places.len()).map(|(address, _)| *address)
        } else {
            None
        };
        if let Some(oldest) = gives_way.and_then(|address| taken.remove(address, None)) {
            oldest.cancel();
        }
        Place { places: self.clone(), address, number }
    }
}

/// One of them.
#[derive(Debug)]
pub(super) struct Place {
    places: Arc<Places>,
    address: Address,
    number: u64,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.lock().remove(self.address, Some(self.number));
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn the_oldest_of_the_address_with_the_most_gives_way() {
        let places = Places::new(3, 4);
        let take = |number: u8| {
            let token = CancellationToken::new();
            (places.take(Address::V4(Ipv4Addr::new(192, 0, 2, number)), token.clone()), token)
        };
        let alone = take(1);
        let many = [take(2), take(2), take(2)];
        assert!(many.iter().all(|(_, token)| !token.is_cancelled()));
        let fourth = take(2);
        assert!(many[0].1.is_cancelled(), "an address gives way to itself");
        let another = take(3);
        assert!(many[1].1.is_cancelled(), "and to others when there are too many");
        assert!(!alone.1.is_cancelled() && !another.1.is_cancelled() && !fourth.1.is_cancelled());
        drop((alone, many, fourth, another));
        assert_eq!(places.lock().count, 0);
        assert!(places.lock().of.is_empty());
    }

    #[test]
    fn this_computer_gives_way_only_when_all_places_are_taken() {
        let places = Places::new(1, 3);
        let tokens = [(); 4].map(|()| CancellationToken::new());
        let taken = tokens.clone().map(|token| places.take(Address::Local, token));
        assert!(tokens[0].is_cancelled() && !tokens[1].is_cancelled());
        drop(taken);
    }
}
