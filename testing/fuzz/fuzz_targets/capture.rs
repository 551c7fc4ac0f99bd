#![no_main]

fuzz::target!(fuzz_targets::capture);
