#![no_main]

fuzz::target!(perftools::fuzzing::partitions_conf);
