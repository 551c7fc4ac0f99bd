#![no_main]

fuzz::target!(fuzz_targets::nft_json);
