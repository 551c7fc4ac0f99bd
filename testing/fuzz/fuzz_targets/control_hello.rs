#![no_main]

fuzz::target!(fuzz_targets::control_hello);
