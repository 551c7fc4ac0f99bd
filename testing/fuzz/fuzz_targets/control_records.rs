#![no_main]

fuzz::target!(perftools::fuzzing::control_records);
