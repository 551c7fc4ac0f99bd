#![no_main]

fuzz::target!(fuzz_targets::transfer_sequence);
