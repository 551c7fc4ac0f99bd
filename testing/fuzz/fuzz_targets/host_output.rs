#![no_main]

fuzz::target!(fuzz_targets::host_output);
