#![no_main]

fuzz::target!(perftools::fuzzing::nft_json);
