//! Options of the server, and what a client shows it.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use ipnet::IpNet;

use crate::common::units::{Size, parse_time};

const SERVER: &str = "Server (-lp)";
const CLIENT: &str = "Which server";

/// What a server allows, and what a client shows it.
#[derive(Clone, Debug, Default, Args)]
pub struct ServerOptions {
    /// Serve clients of these networks only, and of this host; may be given several times
    #[arg(long, value_name = "CIDR", value_delimiter = ',', help_heading = SERVER)]
    pub allow: Vec<IpNet>,
    /// Serve at most N clients at once [default: 64]
    #[arg(long, value_name = "N", help_heading = SERVER)]
    pub max_clients: Option<u32>,
    /// The buffers of all tests at once take at most this [default: 4G]
    #[arg(long, value_name = "SIZE", help_heading = SERVER)]
    pub max_memory: Option<Size>,
    /// A test takes at most this long [default: 1h]
    #[arg(long, value_name = "TIME", value_parser = parse_time, help_heading = SERVER)]
    pub max_time: Option<Duration>,
    /// A message is at most this large [default: 1G]
    #[arg(long, value_name = "SIZE", help_heading = SERVER)]
    pub max_size: Option<Size>,
    /// Every client that is served may end the server by `quit`, not only those of this host
    #[arg(long, help_heading = SERVER)]
    pub allow_quit: bool,
    /// A file with a secret of 16 bytes or more: a server serves only clients that have the same
    /// (nothing of it is sent)
    #[arg(long, value_name = "FILE", help_heading = CLIENT)]
    pub token_file: Option<PathBuf>,
    /// The server is a qperf: say so at once (without this it is noticed, which takes a connection
    /// more)
    #[arg(long, help_heading = CLIENT)]
    pub qperf: bool,
}

impl ServerOptions {
    /// The first option in use that only a server has.
    pub fn server_only(&self) -> Option<&'static str> {
        let uses = [
            (!self.allow.is_empty(), "--allow"),
            (self.max_clients.is_some(), "--max-clients"),
            (self.max_memory.is_some(), "--max-memory"),
            (self.max_time.is_some(), "--max-time"),
            (self.max_size.is_some(), "--max-size"),
            (self.allow_quit, "--allow-quit"),
        ];
        uses.into_iter().find(|u| u.0).map(|u| u.1)
    }
}
