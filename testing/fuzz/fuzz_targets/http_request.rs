#![no_main]

fuzz::target!(perftools::fuzzing::http_request);
