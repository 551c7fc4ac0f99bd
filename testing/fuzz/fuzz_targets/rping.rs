#![no_main]

fuzz::target!(fuzz_targets::rping);
