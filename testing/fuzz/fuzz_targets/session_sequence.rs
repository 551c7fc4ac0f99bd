#![no_main]

fuzz::target!(fuzz_targets::session_sequence);
