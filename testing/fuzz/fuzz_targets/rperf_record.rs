#![no_main]

fuzz::target!(fuzz_targets::rperf_record);
