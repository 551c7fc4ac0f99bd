#![no_main]

fuzz::target!(perftools::fuzzing::mesh_record);
