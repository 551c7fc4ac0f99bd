//! Tests that start the programs on this host, without RDMA devices, and tests of the documents.
//! They are one test program, because linking costs more than compiling most of them.

mod cli;
#[path = "../common/mod.rs"]
mod common;
mod documents;
mod hardening;
mod hostile_peer;
mod manuals;
mod mesh;
mod monitor;
mod other_tools;
mod prometheus_files;
mod recipes;
mod report;
mod ribinfo;
mod ribinfo_configuration;
mod ribinfo_trees;
mod schema;
mod server;
mod signals;
mod sockets;
