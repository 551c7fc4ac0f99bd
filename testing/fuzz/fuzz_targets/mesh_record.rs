#![no_main]

fuzz::target!(fuzz_targets::mesh_record);
