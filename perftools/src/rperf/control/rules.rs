//! What a server allows: whom, how much, how long.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ipnet::IpNet;

use super::token::Token;
use crate::common::error::{Error, Result};
use crate::common::units::{Size, show_time};
use crate::rperf::args::server::ServerOptions;
use crate::rperf::spec::{Limit, MAX_MESSAGE, MAX_TIME, Spec};

/// Clients that are served at once where nothing else is said.
const CLIENTS: u32 = 64;
/// The memory of all tests at once where nothing else is said.
const MEMORY: u64 = 4 << 30;
/// The longest test where nothing else is said.
const TIME: Duration = Duration::from_secs(3600);

/// What a server allows.
#[derive(Clone, Debug)]
pub struct Rules {
    /// Networks whose clients are served; none: all.
    pub allow: Vec<IpNet>,
    /// The secret that a client has to have.
    pub token: Option<Token>,
    /// Every client that is served may end the server, not only those of this host.
    pub quit_by_all: bool,
    /// Clients at once.
    pub max_clients: u32,
    /// Bytes of the buffers of all tests at once.
    pub max_memory: u64,
    /// The longest test.
    pub max_time: Duration,
    /// The largest message.
    pub max_size: u64,
    in_use: Arc<AtomicU64>,
}

impl Default for Rules {
    /// What holds for both ends in one command: this program's own limits.
    fn default() -> Self {
        Self {
            allow: Vec::new(),
            token: None,
            quit_by_all: false,
            max_clients: CLIENTS,
            max_memory: u64::MAX,
            max_time: MAX_TIME,
            max_size: MAX_MESSAGE,
            in_use: Arc::default(),
        }
    }
}

/// Memory that a test holds; it is given back when this is dropped.
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
    /// The rules that these options make.
    ///
    /// # Errors
    /// The token file cannot be used, or a limit is none.
    pub fn new(o: &ServerOptions) -> Result<Self> {
        let rules = Self {
            allow: o.allow.clone(),
            token: o.token_file.as_deref().map(Token::read).transpose()?,
            quit_by_all: o.allow_quit,
            max_clients: o.max_clients.unwrap_or(CLIENTS),
            max_memory: o.max_memory.map_or(MEMORY, |s| s.0),
            max_time: o.max_time.unwrap_or(TIME),
            max_size: o.max_size.map_or(MAX_MESSAGE, |s| s.0),
            in_use: Arc::default(),
        };
        for (none, option) in [
            (rules.max_clients == 0, "--max-clients"),
            (rules.max_memory == 0, "--max-memory"),
            (rules.max_time.is_zero(), "--max-time"),
            (rules.max_size == 0, "--max-size"),
        ] {
            if none {
                return Err(Error::limit(format!(
                    "{option} 0: a server that serves nobody; leave it away or give more"
                )));
            }
        }
        Ok(rules)
    }

    /// The same for so many clients at once.
    #[must_use]
    pub fn clients(mut self, max_clients: u32) -> Self {
        self.max_clients = max_clients;
        self
    }

    /// Whether a client of this address is served.
    ///
    /// # Errors
    /// It is of none of the networks.
    pub fn admit_host(&self, peer: IpAddr) -> Result<()> {
        let peer = peer.to_canonical();
        if self.allow.is_empty()
            || peer.is_loopback()
            || self.allow.iter().any(|net| net.contains(&peer))
        {
            return Ok(());
        }
        Err(Error::limit(format!(
            "{peer} is not served here (the server's --allow names the networks that are)"
        )))
    }

    /// Whether a test is within the limits; keeps its memory.
    ///
    /// # Errors
    /// Says which limit, and the server's option that sets it.
    pub fn admit(&self, spec: &Spec) -> Result<MemoryReservation> {
        if spec.msg_size > self.max_size {
            return Err(Error::limit(format!(
                "message of {}: the server allows {} (--max-size there sets it)",
                Size(spec.msg_size),
                Size(self.max_size)
            )));
        }
        if let Limit::Time(time) = spec.limit {
            if time > self.max_time {
                return Err(Error::limit(format!(
                    "a test of {}: the server allows {} (--max-time there sets it)",
                    show_time(time),
                    show_time(self.max_time)
                )));
            }
        }
        let bytes = spec.memory();
        let take = |used: u64| {
            used.checked_add(bytes)
                .filter(|sum| *sum <= self.max_memory)
        };
        match self
            .in_use
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take)
        {
            Ok(_) => Ok(MemoryReservation {
                in_use: Arc::clone(&self.in_use),
                bytes,
            }),
            Err(used) => Err(Error::limit(format!(
                "{} of buffers: the server allows {} for all tests at once, {} are in use (--max-memory there sets it)",
                Size(bytes),
                Size(self.max_memory),
                Size(used)
            ))),
        }
    }

    /// Whether the client at `peer`, which reached this host at `local`, may end the server.
    ///
    /// # Errors
    /// Says who may.
    pub fn may_quit(&self, local: IpAddr, peer: IpAddr) -> Result<()> {
        // A host's connection to one of its own addresses has that address at both ends.
        if self.quit_by_all || peer.is_loopback() || peer == local {
            return Ok(());
        }
        Err(Error::limit(format!(
            "quit is for the server's own host only, and you are {peer}: run `rperf localhost quit` there (or let the server have --allow-quit)"
        )))
    }

    /// How long a connection may be open.
    pub fn longest(&self) -> Duration {
        self.max_time.saturating_add(Duration::from_secs(60))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rperf::args::options::Options;
    use crate::rperf::spec::test::Test;
    use clap::Parser;

    fn options(line: &str) -> Options {
        Options::try_parse_from(std::iter::once("rperf").chain(line.split_whitespace())).unwrap()
    }

    fn rules(line: &str) -> Rules {
        Rules::new(&options(line).server).unwrap()
    }

    #[test]
    fn networks_that_are_not_named_are_not_served_but_this_host_always_is() {
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
    fn memory_is_counted_over_all_tests_and_given_back() {
        let rules = rules("--max-memory 3M");
        let spec = options("--msg-size 1M").to_spec(Test::TcpBw).unwrap();
        let first = rules.admit(&spec).unwrap();
        let mut held = vec![first];
        let refused = loop {
            match rules.admit(&spec) {
                Ok(more) => held.push(more),
                Err(error) => break error.to_string(),
            }
        };
        assert!(
            refused.contains("--max-memory") && held.len() <= 3,
            "{refused}"
        );
        drop(held);
        assert!(rules.admit(&spec).is_ok());
    }

    #[test]
    fn longer_tests_and_larger_messages_name_the_option() {
        let rules = rules("--max-time 10 --max-size 1M");
        for (line, says) in [("--time 11", "--max-time"), ("--msg-size 2M", "--max-size")] {
            let spec = options(line).to_spec(Test::TcpBw).unwrap();
            assert!(
                rules.admit(&spec).unwrap_err().to_string().contains(says),
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
    fn quit_is_for_this_host_unless_all_may() {
        let [here, there] = ["10.0.0.1", "10.0.0.2"].map(|ip| ip.parse().unwrap());
        assert!(rules("").may_quit(here, there).is_err());
        assert!(rules("").may_quit(here, here).is_ok());
        assert!(rules("").may_quit(here, "::1".parse().unwrap()).is_ok());
        assert!(rules("--allow-quit").may_quit(here, there).is_ok());
    }
}
