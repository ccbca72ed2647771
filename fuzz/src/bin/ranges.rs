//! `cargo xtask fuzz ranges`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    fuzz::ranges::check(bytes);
});
