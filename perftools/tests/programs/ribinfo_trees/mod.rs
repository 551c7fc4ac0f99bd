//! `ribinfo --root` on trees of healthy hosts, of hosts with one fault, and of hostile trees.

mod capture;
mod hostile;
mod tree;
mod verdicts;
