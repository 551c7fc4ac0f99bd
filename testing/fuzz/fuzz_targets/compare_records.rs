#![no_main]

fuzz::target!(perftools::fuzzing::compare_records);
