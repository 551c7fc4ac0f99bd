//! `ribinfo` on real drivers: a healthy host has no fault, each injected fault is found, its remedy
//! works, and the output agrees with that of the classic tools.

mod here;
mod host;
mod peer;
mod place;
mod planted;
