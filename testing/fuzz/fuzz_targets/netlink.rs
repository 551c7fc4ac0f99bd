#![no_main]

fuzz::target!(perftools::fuzzing::netlink);
