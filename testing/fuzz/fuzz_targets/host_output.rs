#![no_main]

fuzz::target!(perftools::fuzzing::host_output);
