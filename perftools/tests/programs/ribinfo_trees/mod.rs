//! `ribinfo --root` on trees of healthy hosts, of hosts with one fault, of hostile trees, and of
//! the hosts of public reports.

mod capture;
mod host_builder;
mod host_modes;
mod hostile;
mod mistakes;
mod remedies;
mod reports;
mod selections;
mod tree;
mod verdicts;
