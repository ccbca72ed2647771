//! `cargo xtask fuzz weights`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| drop(fuzz::weights::check(bytes)));
