#![no_main]

fuzz::target!(perftools::fuzzing::opensm_files);
