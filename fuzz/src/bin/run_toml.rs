//! `cargo xtask fuzz run_toml`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    fuzz::run_toml::check(bytes);
});
