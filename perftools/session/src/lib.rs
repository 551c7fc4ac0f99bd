//! Sessions between two hosts: protocols, servers, limits and authentication.
//!
//! | module | contents |
//! |---|---|
//! | [`protocol`] | start and framing of the control protocol: hello, token, messages as JSON |
//! | [`server`] | connections, threads and listeners of a server; networks that it answers |
//! | [`restart`] | servers whose devices are being removed |
//! | [`facts`] | the request of `ribinfo check --peer` for the facts of another host |
//! | [`answer`] [`diagnosis`] | the answer to a client; the judgement of results, made elsewhere |
//! | `hardware` | the description of the device of a connection |
//! | [`probe`] | probes of a path, and the reflectors that answer them |
//! | [`connect`] [`client`] | connections to servers; a test with an rperf or a qperf |
//! | [`rperf`] | rperf's client and server: a test from the request to the results of both ends |
//! | [`qperf`] | the same over the protocol of qperf 0.4.11 |
//!
//! A session runs the loops of the crate `measure`, and returns what both ends have measured. It
//! makes no record and no verdict. The programs start clients and servers, and the
//! crate `fleet` starts clients for many hosts.

#![forbid(unsafe_code)]
#![expect(clippy::missing_errors_doc, reason = "errors explain themselves")]

#[cfg(test)]
use test_support as _;

pub mod answer;
pub mod client;
pub mod connect;
pub mod diagnosis;
pub mod facts;
mod hardware;
pub mod probe;
pub mod protocol;
pub mod qperf;
pub mod restart;
pub mod rperf;
pub mod server;
