#![no_main]

fuzz::target!(perftools::fuzzing::peer_text);
