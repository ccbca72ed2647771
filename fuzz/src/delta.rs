//! Files of what a worker learned in a round, against what was expected of it.

use protocol::{
    blob::BlobHash,
    delta::{self, Delta, DeltaEncoding, DeltaExpectation, DeltaHeader, encoded_bytes},
};

use crate::memory;

/// Numbers in the tensors of the block: one, none, and more than one block of int8.
pub const LENGTHS: [u32; 4] = [1, 0, 70, 5];
/// Largest number that a delta may have.
pub const LARGEST: f32 = 100.0;
/// The encodings of runs; one of top-k sends less than a number, and so one.
pub const ENCODINGS: [DeltaEncoding; 5] = [
    DeltaEncoding::F32,
    DeltaEncoding::F16,
    DeltaEncoding::Int8,
    DeltaEncoding::TopK { per_mille: 100 },
    DeltaEncoding::TopK { per_mille: 1 },
];

/// The header of a delta that is expected.
pub fn header(encoding: DeltaEncoding) -> DeltaHeader {
    DeltaHeader {
        round: 3,
        block: 1,
        base: BlobHash::of(b"base"),
        table: BlobHash::of(b"table"),
        encoding,
        lengths: LENGTHS.to_vec(),
    }
}

/// Reads `bytes` as a delta, in runs of every encoding.
///
/// # Panics
/// When something is not as it must be.
pub fn check(bytes: &[u8]) -> bool {
    // At most one encoding can be the header's.
    ENCODINGS.iter().filter(|encoding| expected(bytes, **encoding)).count() == 1
}

fn expected(bytes: &[u8], encoding: DeltaEncoding) -> bool {
    let header = header(encoding);
    let expectation = DeltaExpectation {
        round: header.round,
        block: header.block,
        base: header.base,
        table: header.table,
        encoding,
        lengths: &header.lengths,
        largest: LARGEST,
    };
    let numbers: u64 = LENGTHS.iter().copied().map(u64::from).sum();
    // What a header of hostile lengths may claim; codes and values, and a list of each while they are collected.
    let limit = (1 << 20) + 16 * (bytes.len() as u64 + 4 * numbers) + 4096;
    match memory::within(limit, || delta::decode(bytes, &expectation)) {
        Ok(delta) => sound(bytes, &header, &expectation, &delta),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    delta::decode(bytes, &expectation).is_ok()
}

fn sound(bytes: &[u8], header: &DeltaHeader, expectation: &DeltaExpectation<'_>, delta: &Delta) {
    let payload = &bytes[bytes.len() - encoded_bytes(header.encoding, &header.lengths) as usize..];
    assert_eq!(delta.body, BlobHash::of(payload));
    assert!(delta.tensors.iter().map(Vec::len).eq(LENGTHS.map(|length| length as usize)));
    let possible = |value: &f32| value.is_finite() && value.abs() <= LARGEST;
    assert!(delta.tensors.iter().flatten().all(possible), "{delta:?}");

    let mut kept = Vec::new();
    let again =
        delta::encode(header, &delta.tensors, Some(&mut kept)).expect("what is decoded can be encoded");
    match header.encoding {
        DeltaEncoding::F32 | DeltaEncoding::F16 => assert!(again.ends_with(payload)),
        // Scales are made anew.
        DeltaEncoding::Int8 => {}
        DeltaEncoding::TopK { .. } => {
            assert!(kept.iter().flatten().all(|rest| *rest == 0.0), "top-k has room for all it decoded");
            let tensors = delta::decode(&again, expectation).map(|delta| delta.tensors);
            assert_eq!(tensors.as_ref(), Ok(&delta.tensors));
        }
    }
}
