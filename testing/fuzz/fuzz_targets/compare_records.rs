#![no_main]

fuzz::target!(fuzz_targets::compare_records);
