//! How much memory reading takes.

/// What `read` gives. It may hold at most `limit` bytes at a time.
pub(crate) fn within<T>(limit: u64, read: impl FnOnce() -> T) -> T {
    let mut result = None;
    let held = allocation_counter::measure(|| result = Some(read())).bytes_max;
    assert!(held <= limit, "{held} bytes were held, at most {limit} are accounted for by the input");
    result.expect("`measure` calls what it is given")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_more_than_allowed_is_noticed() {
        let take = |bytes: usize| std::hint::black_box(vec![0_u8; bytes]).len();
        assert_eq!(within(1000, || take(1000)), 1000);
        assert!(std::panic::catch_unwind(|| within(999, || take(1000))).is_err());
    }
}
