//! Reading a hostile frame takes no more memory than stated.

#![allow(clippy::unwrap_used)]

mod common;

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
};

use common::{Damage, Sent, apply_damage, damage, framed, from_worker, to_worker};
use proptest::prelude::*;
use protocol::{
    frame::{self, MAX_DECODE_MEMORY},
    limits::HEADER_BYTES,
    message::{FrameHeader, FromWorker, ToWorker},
};

thread_local! {
    /// Bytes this thread holds, and the most it held since [`peak_of`] began.
    static HELD: Cell<usize> = const { Cell::new(0) };
    static PEAK: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

fn taken(bytes: usize) {
    let held = HELD.get().saturating_add(bytes);
    HELD.set(held);
    PEAK.set(PEAK.get().max(held));
}

fn given_back(bytes: usize) {
    HELD.set(HELD.get().saturating_sub(bytes));
}

// SAFETY: every call goes to the system's allocator as it came; the cells are plain thread locals, which
// allocate nothing themselves.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        taken(layout.size());
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        given_back(layout.size());
        unsafe { System.dealloc(place, layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // Both may exist while the bytes move.
        taken(size);
        let moved = unsafe { System.realloc(place, layout, size) };
        given_back(layout.size());
        moved
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The most memory that reading `bytes` held at once.
fn peak_of<M: FrameHeader>(bytes: &[u8]) -> usize {
    HELD.set(0);
    PEAK.set(0);
    let result = frame::decode::<M>(bytes);
    let peak = PEAK.get();
    drop(result);
    peak
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

#[test]
fn the_counter_counts() {
    PEAK.set(0);
    HELD.set(0);
    let bytes = std::hint::black_box(vec![0_u8; 3 << 20]);
    assert!(PEAK.get() >= 3 << 20 && PEAK.get() < 4 << 20);
    drop(bytes);
    assert!(HELD.get() < 1 << 20);
}

/// Most memory taken by any variant, with every way of claiming a long text or list, at every place where one may
/// begin.
fn worst_of_claims<M: FrameHeader>() -> usize {
    let mut worst = 0;
    // FromWorker or ToWorker has two variants, and each of them at most as many as are tried here.
    for (way, variant) in (0..2_u8).flat_map(|way| (0..15_u8).map(move |variant| (way, variant))) {
        for fields in 0..80 {
            for filler in [0, 1] {
                for size in [1 << 10, 16 << 10, HEADER_BYTES] {
                    let mut start = vec![way, variant];
                    start.resize(start.len() + fields, filler);
                    let left = (size - start.len()) as u64;
                    for claim in
                        [left / 40, left / 6, left - 3, left, left + 1, 1 << 20, u32::MAX.into(), u64::MAX]
                    {
                        let mut header = start.clone();
                        header.extend(varint(claim));
                        header.resize(size, filler);
                        worst = worst.max(peak_of::<M>(&framed(&header, &[])));
                    }
                }
            }
        }
    }
    worst
}

#[test]
fn claimed_lengths_are_not_believed() {
    for worst in [worst_of_claims::<FromWorker>(), worst_of_claims::<ToWorker>()] {
        assert!(worst <= MAX_DECODE_MEMORY, "{worst} bytes were held");
        // The search found the places where lists begin: a long claim there alone is worth this much.
        assert!(worst >= 4 * (HEADER_BYTES - 100), "only {worst} bytes were held");
    }
}

/// What a damaged header may take.
fn takes_no_more<M: FrameHeader>(sent: &Sent<M>, damage: &[Damage], filler: u8) -> Result<(), TestCaseError> {
    let mut header = postcard::to_stdvec(&sent.message).unwrap();
    apply_damage(&mut header, damage);
    header.truncate(HEADER_BYTES);
    prop_assert!(peak_of::<M>(&framed(&header, &[])) <= MAX_DECODE_MEMORY);
    header.resize(HEADER_BYTES, filler);
    prop_assert!(peak_of::<M>(&framed(&header, &[])) <= MAX_DECODE_MEMORY);
    Ok(())
}

fn borrows_the_payload<M: FrameHeader>(sent: &Sent<M>) -> Result<(), TestCaseError> {
    let bytes = frame::encode(&sent.message, &sent.payload).unwrap();
    let header = bytes.len() - sent.payload.len();
    prop_assert!(peak_of::<M>(&bytes) <= 4 * header + 1024);
    Ok(())
}

proptest! {
    #[test]
    fn damaged_frames_take_no_more(
        up in from_worker(), down in to_worker(), damage in damage(), filler in any::<u8>(),
    ) {
        takes_no_more(&up, &damage, filler)?;
        takes_no_more(&down, &damage, filler)?;
    }

    /// A frame that is fine takes about what its header takes, however long its payload.
    #[test]
    fn payloads_are_borrowed(up in from_worker(), down in to_worker()) {
        borrows_the_payload(&up)?;
        borrows_the_payload(&down)?;
    }
}
