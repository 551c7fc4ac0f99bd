#![no_main]

fuzz::target!(perftools::fuzzing::capture);
