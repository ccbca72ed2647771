//! `cargo xtask fuzz frame`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| drop(fuzz::frame::check(bytes)));
