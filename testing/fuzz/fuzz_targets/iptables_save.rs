#![no_main]

fuzz::target!(fuzz_targets::iptables_save);
