//! `cargo xtask fuzz delta`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    fuzz::delta::check(bytes);
});
