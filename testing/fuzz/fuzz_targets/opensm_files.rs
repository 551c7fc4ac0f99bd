#![no_main]

fuzz::target!(fuzz_targets::opensm_files);
