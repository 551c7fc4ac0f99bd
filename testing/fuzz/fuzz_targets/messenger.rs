#![no_main]

fuzz::target!(rdmacm::messenger::fuzzing::messenger);
