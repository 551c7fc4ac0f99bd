#![no_main]

fuzz::target!(fuzz_targets::http_request);
