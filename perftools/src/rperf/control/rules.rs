//! Limits and permissions of a server.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ipnet::IpNet;
use nix::ifaddrs::{InterfaceAddress, getifaddrs};

use super::token::Token;
use crate::common::error::{Error, Result};
use crate::common::units::{Size, show_time};
use crate::rperf::args::server::ServerOptions;
use crate::rperf::spec::{Limit, MAX_MESSAGE, MAX_TIME, Spec};

/// Default for the number of clients at a time.
const DEFAULT_MAX_CLIENTS: u32 = 64;
/// Default for the memory of all running tests, in bytes.
const DEFAULT_MAX_MEMORY: u64 = 4 << 30;
/// Default for the duration of a test.
const DEFAULT_MAX_TIME: Duration = Duration::from_secs(3600);

/// Limits and permissions of a server.
#[derive(Clone, Debug)]
pub struct Rules {
    /// Networks whose clients are served. If there are none, all clients are served.
    pub allow: Vec<IpNet>,
    /// Secret that clients must have.
    pub token: Option<Token>,
    /// If `true`, all clients may stop the server, not only those on this host.
    pub remote_quit: bool,
    /// Maximum number of clients at a time.
    pub max_clients: u32,
    /// Maximum size in bytes of the buffers of all running tests together.
    pub max_memory: u64,
    /// Maximum duration of a test.
    pub max_time: Duration,
    /// Maximum message size in bytes.
    pub max_size: u64,
    /// Bytes reserved by running tests.
    in_use: Arc<AtomicU64>,
}

impl Default for Rules {
    /// Returns the rules of a server that runs in the same process as its client: only the limits
    /// of this program apply.
    fn default() -> Self {
        Self {
            allow: Vec::new(),
            token: None,
            remote_quit: false,
            max_clients: DEFAULT_MAX_CLIENTS,
            max_memory: u64::MAX,
            max_time: MAX_TIME,
            max_size: MAX_MESSAGE,
            in_use: Arc::default(),
        }
    }
}

/// Memory reserved by a test. It is released on drop.
#[derive(Debug)]
pub struct MemoryReservation {
    in_use: Arc<AtomicU64>,
    bytes: u64,
}

impl Drop for MemoryReservation {
    fn drop(&mut self) {
        self.in_use.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Rules {
    /// Creates the rules from command-line options.
    ///
    /// # Errors
    /// Returns an error if the token file cannot be used or a limit is 0.
    pub fn new(o: &ServerOptions) -> Result<Self> {
        let rules = Self {
            allow: o.allow.clone(),
            token: o.token_file.as_deref().map(Token::read).transpose()?,
            remote_quit: o.allow_quit,
            max_clients: o.max_clients.unwrap_or(DEFAULT_MAX_CLIENTS),
            max_memory: o.max_memory.map_or(DEFAULT_MAX_MEMORY, |s| s.0),
            max_time: o.max_time.unwrap_or(DEFAULT_MAX_TIME),
            max_size: o.max_size.map_or(MAX_MESSAGE, |s| s.0),
            in_use: Arc::default(),
        };
        for (is_zero, option) in [
            (rules.max_clients == 0, "--max-clients"),
            (rules.max_memory == 0, "--max-memory"),
            (rules.max_time.is_zero(), "--max-time"),
            (rules.max_size == 0, "--max-size"),
        ] {
            if is_zero {
                return Err(Error::limit(format!("{option} must not be 0"))
                    .with_help(format!("omit {option} or set it higher")));
            }
        }
        Ok(rules)
    }

    /// Sets the maximum number of clients at a time.
    #[must_use]
    pub fn with_max_clients(mut self, max_clients: u32) -> Self {
        self.max_clients = max_clients;
        self
    }

    /// Checks that a client with this address may be served.
    ///
    /// # Errors
    /// Returns an error if the address belongs to none of the networks.
    pub fn admit_host(&self, peer: IpAddr) -> Result<()> {
        let peer = peer.to_canonical();
        if self.allow.is_empty()
            || is_this_host(peer)
            || self.allow.iter().any(|net| net.contains(&peer))
        {
            return Ok(());
        }
        Err(Error::limit(format!("clients at {peer} are not allowed"))
            .with_help("add the network to --allow on the server"))
    }

    /// Checks that a test is within the limits and reserves its memory.
    ///
    /// # Errors
    /// Returns an error that names the exceeded limit and its option.
    pub fn admit(&self, spec: &Spec) -> Result<MemoryReservation> {
        if spec.msg_size > self.max_size {
            return Err(Error::limit(format!(
                "message size {}: the server allows at most {}",
                Size(spec.msg_size),
                Size(self.max_size)
            ))
            .with_help("set --max-size higher on the server"));
        }
        if let Limit::Time(time) = spec.limit {
            if time > self.max_time {
                return Err(Error::limit(format!(
                    "duration {}: the server allows at most {}",
                    show_time(time),
                    show_time(self.max_time)
                ))
                .with_help("set --max-time higher on the server"));
            }
        }
        let bytes = spec.memory();
        let reserve = |used: u64| {
            used.checked_add(bytes)
                .filter(|sum| *sum <= self.max_memory)
        };
        match self
            .in_use
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, reserve)
        {
            Ok(_) => Ok(MemoryReservation {
                in_use: Arc::clone(&self.in_use),
                bytes,
            }),
            Err(used) => Err(Error::limit(format!(
                "buffers of {}: the server allows {} for all tests together, of these {} are in use",
                Size(bytes),
                Size(self.max_memory),
                Size(used)
            ))
            .with_help("set --max-memory higher on the server")),
        }
    }

    /// Checks that the client at `peer`, which is connected to this host's address `local`, may
    /// stop the server.
    ///
    /// # Errors
    /// Returns an error if the client is on another host and remote quitting is not allowed.
    pub fn admit_quit(&self, local: IpAddr, peer: IpAddr) -> Result<()> {
        // A connection within one host has the same address at both ends.
        if self.remote_quit || peer.is_loopback() || peer == local {
            return Ok(());
        }
        Err(Error::limit(format!(
            "quit is not allowed from other hosts, and the client is {peer}"
        ))
        .with_help(
            "run `rperf localhost quit` on the server, or start the server with --allow-quit",
        ))
    }

    /// Returns the time after which a connection is closed.
    pub fn max_connection_time(&self) -> Duration {
        self.max_time.saturating_add(Duration::from_secs(60))
    }
}

/// Returns `true` if the address belongs to this host.
fn is_this_host(ip: IpAddr) -> bool {
    let has_address = |interface: InterfaceAddress| {
        let Some(address) = interface.address else {
            return false;
        };
        match ip {
            IpAddr::V4(ip) => address.as_sockaddr_in().is_some_and(|a| a.ip() == ip),
            IpAddr::V6(ip) => address.as_sockaddr_in6().is_some_and(|a| a.ip() == ip),
        }
    };
    ip.is_loopback() || getifaddrs().is_ok_and(|mut all| all.any(has_address))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rperf::args::command_line::Options;
    use crate::rperf::spec::test::Test;
    use clap::Parser;

    fn options(line: &str) -> Options {
        Options::try_parse_from(std::iter::once("rperf").chain(line.split_whitespace())).unwrap()
    }

    fn rules(line: &str) -> Rules {
        Rules::new(&options(line).server).unwrap()
    }

    #[test]
    fn only_listed_networks_and_this_host_are_admitted() {
        let rules = rules("--allow 10.1.0.0/16,fd00::/8 --allow 192.0.2.7/32");
        for (peer, served) in [
            ("10.1.2.3", true),
            ("::ffff:10.1.2.3", true),
            ("fd01::9", true),
            ("192.0.2.7", true),
            ("127.0.0.1", true),
            ("::1", true),
            ("10.2.0.1", false),
            ("192.0.2.8", false),
            ("2001:db8::1", false),
        ] {
            assert_eq!(
                rules.admit_host(peer.parse().unwrap()).is_ok(),
                served,
                "{peer}"
            );
        }
    }

    #[test]
    fn each_address_of_this_host_is_admitted() {
        let rules = rules("--allow 192.0.2.7/32");
        let addresses = getifaddrs().unwrap().filter_map(|interface| {
            let v4 = interface.address?.as_sockaddr_in()?.ip();
            Some(IpAddr::V4(v4))
        });
        for address in addresses {
            assert!(rules.admit_host(address).is_ok(), "{address}");
        }
    }

    #[test]
    fn memory_is_reserved_and_released() {
        let rules = rules("--max-memory 3M");
        let spec = options("--msg-size 1M").to_spec(Test::TcpBw).unwrap();
        let first = rules.admit(&spec).unwrap();
        let mut reservations = vec![first];
        let text = loop {
            match rules.admit(&spec) {
                Ok(reservation) => reservations.push(reservation),
                Err(error) => break error.to_string(),
            }
        };
        assert!(
            text.contains("--max-memory") && reservations.len() <= 3,
            "{text}"
        );
        drop(reservations);
        assert!(rules.admit(&spec).is_ok());
    }

    #[test]
    fn errors_for_exceeded_limits_name_the_option() {
        let rules = rules("--max-time 10 --max-size 1M");
        for (line, option) in [("--time 11", "--max-time"), ("--msg-size 2M", "--max-size")] {
            let spec = options(line).to_spec(Test::TcpBw).unwrap();
            assert!(
                rules.admit(&spec).unwrap_err().to_string().contains(option),
                "{line}"
            );
        }
        assert!(
            Rules::new(&options("--max-time 0").server)
                .unwrap_err()
                .to_string()
                .contains("--max-time")
        );
    }

    #[test]
    fn only_this_host_may_quit_by_default() {
        let [local, remote] = ["10.0.0.1", "10.0.0.2"].map(|ip| ip.parse().unwrap());
        assert!(rules("").admit_quit(local, remote).is_err());
        assert!(rules("").admit_quit(local, local).is_ok());
        assert!(rules("").admit_quit(local, "::1".parse().unwrap()).is_ok());
        assert!(rules("--allow-quit").admit_quit(local, remote).is_ok());
    }
}
