#![no_main]

fuzz::target!(fuzz_targets::partitions_conf);
