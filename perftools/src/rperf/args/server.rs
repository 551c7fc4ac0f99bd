//! Options of the server, and how a client identifies itself to it.

use std::path::PathBuf;
use std::time::Duration;

use base::units::{Size, parse_time};
use clap::Args;
use ipnet::IpNet;
use session::rperf::rules;

use super::option::OtherCommand::{Mesh, Tune};
use super::option::{Scope, entry, options};
use super::values::duration;

const SERVER: &str = "Server";
const CLIENT: &str = "Client and server";

options! {
/// Limits of a server, and how a client identifies itself to it.
#[derive(Clone, Debug, Default, Args)]
#[allow(clippy::struct_excessive_bools)] // One per option.
pub struct ServerArgs {
    /// Serve only clients from these networks and from this host, and send data only to their
    /// addresses, to those of these networks and to those of this host's networks; may be repeated
    /// [default: serve all clients]
    #[arg(long, value_name = "CIDR", value_delimiter = ',', help_heading = SERVER)]
    allow: Vec<IpNet> =
        entry(Scope::Server),
    /// Maximum number of clients served at the same time [default: 64]
    #[arg(long, value_name = "N", help_heading = SERVER)]
    max_clients: Option<u32> =
        entry(Scope::Server),
    /// Maximum memory of all running tests together, in bytes: buffers, queues and thread stacks
    /// [default: 4G]
    #[arg(long, value_name = "SIZE", help_heading = SERVER)]
    max_memory: Option<Size> =
        entry(Scope::Server),
    /// Maximum number of threads of all running tests together [default: 256]
    #[arg(long, hide = true, value_name = "N", help_heading = SERVER)]
    max_threads: Option<u32> =
        entry(Scope::Server),
    /// Maximum number of queue pairs of all running tests together [default: 16384]
    #[arg(long, hide = true, value_name = "N", help_heading = SERVER)]
    max_qps: Option<u32> =
        entry(Scope::Server),
    /// Maximum duration of a test, with its warm-up, or unlimited [default: 1 h]
    #[arg(long, value_name = "TIME", value_parser = duration, help_heading = SERVER)]
    max_time: Option<Duration> =
        entry(Scope::Server),
    /// Maximum message size in bytes [default: 1G]
    #[arg(long, hide = true, value_name = "SIZE", help_heading = SERVER)]
    max_size: Option<Size> =
        entry(Scope::Server),
    /// Maximum time to wait for a client during a test, at least 1 s; a longer --timeout of a
    /// client is lowered to it [default: 1 min]
    #[arg(long, hide = true, value_name = "TIME", value_parser = parse_time, help_heading = SERVER)]
    max_timeout: Option<Duration> =
        entry(Scope::Server),
    /// Let clients from other hosts stop the server with `quit` [default: only from this host]
    #[arg(long, help_heading = SERVER)]
    allow_quit: bool =
        entry(Scope::Server),
    /// Let a coordinator of `rperf mesh` run tests from this host to other hosts; needs
    /// --token-file or --allow
    #[arg(long, help_heading = SERVER)]
    mesh: bool =
        entry(Scope::Server),
    /// Read the token from the first line of standard input, and stop at its end; `rperf mesh`
    /// starts servers in this way
    #[arg(long, hide = true, conflicts_with = "token_file", help_heading = SERVER)]
    supervised: bool =
        entry(Scope::Server),
    /// File with a shared secret of at least 16 bytes, which is never sent; a server that has one
    /// serves only clients with the same secret
    #[arg(long, value_name = "FILE", help_heading = CLIENT)]
    token_file: Option<PathBuf> =
        entry(Scope::Both).of_connection(),
    /// Speak the protocol of qperf from the start, without first detecting that the server is
    /// qperf
    #[arg(long, help_heading = CLIENT)]
    qperf: bool =
        entry(Scope::Run).not_in(&[Tune, Mesh]).of_connection(),
}
}

impl ServerArgs {
    /// Returns the limits and permissions of the server.
    pub fn rules(&self) -> rules::ServerOptions {
        rules::ServerOptions {
            allow: self.allow.clone(),
            max_clients: self.max_clients,
            max_memory: self.max_memory.map(|size| size.0),
            max_threads: self.max_threads,
            max_qps: self.max_qps,
            max_time: self.max_time,
            max_size: self.max_size.map(|size| size.0),
            max_timeout: self.max_timeout,
            allow_quit: self.allow_quit,
            mesh: self.mesh,
            token_file: self.token_file.clone(),
        }
    }
}
