#![no_main]

fuzz::target!(messenger::fuzzing::messenger_sequence);
