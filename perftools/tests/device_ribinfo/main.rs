//! `ribinfo` on real drivers: a healthy host has no fault, each fault that is planted is found with
//! what mends it, and the old tools say the same.

mod here;
mod host;
mod peer;
mod place;
mod planted;
