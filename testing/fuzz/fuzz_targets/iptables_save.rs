#![no_main]

fuzz::target!(perftools::fuzzing::iptables_save);
