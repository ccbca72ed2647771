//! Independent work on all processors, each piece on one thread: small steps lose more than they win by being split.

use std::{
    cell::Cell,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

thread_local! {
    /// On a thread of [`map`] there is nothing left to share out.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// `work` of each item, in the order of the items.
pub fn map<T: Send, R: Send>(items: Vec<T>, work: impl Fn(T) -> R + Sync) -> Vec<R> {
    let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get()).min(items.len());
    if threads < 2 || INSIDE.get() {
        return items.into_iter().map(work).collect();
    }
    let results: Vec<Mutex<Option<R>>> = items.iter().map(|_| Mutex::new(None)).collect();
    let items: Vec<Mutex<Option<T>>> = items.into_iter().map(|item| Mutex::new(Some(item))).collect();
    let next = AtomicUsize::new(0);
    let go = || {
        INSIDE.set(true);
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(at) else { break };
            let item = item.lock().unwrap_or_else(PoisonError::into_inner).take();
            let result = item.map(&work);
            *results[at].lock().unwrap_or_else(PoisonError::into_inner) = result;
        }
        INSIDE.set(false);
    };
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| match rayon::ThreadPoolBuilder::new().num_threads(1).build() {
                Ok(pool) => pool.install(go),
                Err(_) => go(),
            });
        }
    });
    results
        .into_iter()
        .filter_map(|result| result.into_inner().unwrap_or_else(PoisonError::into_inner))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_order_also_from_within() {
        let squares = map((0..50u64).collect(), |x| map(vec![x, x], |y| y * y)[0]);
        assert_eq!(squares, (0..50u64).map(|x| x * x).collect::<Vec<_>>());
    }
}
