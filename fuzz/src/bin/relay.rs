//! `cargo xtask fuzz relay`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    fuzz::relay::check(bytes);
});
