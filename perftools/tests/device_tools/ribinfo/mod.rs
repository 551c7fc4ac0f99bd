//! `ribinfo` on real drivers: a healthy host has no fault, each injected fault is found, its remedy
//! works, and the output agrees with that of the classic tools.

mod builder;
mod faults;
mod gsi;
mod host;
mod host_root;
mod peer;
mod program;
mod resources;
mod restore;
