#![no_main]

fuzz::target!(fuzz_targets::peer_facts);
