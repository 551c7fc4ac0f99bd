#![no_main]

fuzz::target!(perftools::fuzzing::rperf_record);
