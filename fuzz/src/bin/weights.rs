//! `cargo xtask fuzz weights`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    fuzz::weights::check(bytes);
});
