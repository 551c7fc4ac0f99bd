//! Limits and permissions of a server.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base::error::{Error, Result};
use base::units::{Size, show_time};
use ipnet::IpNet;
use measure::spec::{Footprint, Limit, MAX_MESSAGE, Spec, UNLIMITED};

use crate::protocol::token::Token;
use crate::server::networks;

/// Default for the number of clients at a time.
const DEFAULT_MAX_CLIENTS: u32 = 64;
/// Default for the memory of all running tests, in bytes.
const DEFAULT_MAX_MEMORY: u64 = 4 << 30;
/// Default for the number of threads of all running tests.
const DEFAULT_MAX_THREADS: u32 = 256;
/// Default for the number of queue pairs of all running tests.
const DEFAULT_MAX_QPS: u32 = 16_384;
/// Default for the duration of a test.
const DEFAULT_MAX_TIME: Duration = Duration::from_secs(3600);
/// Default for the time to wait for a client.
const DEFAULT_MAX_TIMEOUT: Duration = Duration::from_secs(60);
/// Minimum of the time to wait for a client. The interval of the heartbeats, which both ends derive
/// from the client's timeouts, stays below it.
const MIN_MAX_TIMEOUT: Duration = Duration::from_secs(1);
/// Time that setup and end of a test may take in addition to its duration.
const GRACE: Duration = Duration::from_secs(60);
/// First port that needs no privileges.
const FIRST_UNPRIVILEGED_PORT: u16 = 1024;

/// Options of a server. A limit of `None` is the default.
#[derive(Clone, Debug, Default)]
pub struct ServerOptions {
    /// Networks whose clients are served; empty: all of them.
    pub allow: Vec<IpNet>,
    /// Maximum number of clients at the same time.
    pub max_clients: Option<u32>,
    /// Maximum memory of all running tests in bytes.
    pub max_memory: Option<u64>,
    /// Maximum number of threads of all running tests.
    pub max_threads: Option<u32>,
    /// Maximum number of queue pairs of all running tests.
    pub max_qps: Option<u32>,
    /// Maximum duration of a test, with its warm-up.
    pub max_time: Option<Duration>,
    /// Maximum size of a message in bytes.
    pub max_size: Option<u64>,
    /// Maximum time to wait for a client during a test.
    pub max_timeout: Option<Duration>,
    /// Let clients from other hosts stop the server.
    pub allow_quit: bool,
    /// Run tests for a coordinator of `rperf mesh`.
    pub mesh: bool,
    /// File with the shared secret.
    pub token_file: Option<PathBuf>,
}

/// Limits and permissions of a server.
#[derive(Clone, Debug)]
pub struct Rules {
    /// Networks whose clients are served. If there are none, all clients are served.
    pub allow: Vec<IpNet>,
    /// Secret that clients must have.
    pub token: Option<Token>,
    /// If `true`, all clients may stop the server, not only those on this host.
    pub remote_quit: bool,
    /// If `true`, a coordinator of a mesh may run tests from this host to other hosts.
    pub mesh: bool,
    /// Maximum number of clients at a time.
    pub max_clients: u32,
    /// Maximum memory in bytes of all running tests together.
    pub max_memory: u64,
    /// Maximum number of threads of all running tests together.
    pub max_threads: u32,
    /// Maximum number of queue pairs of all running tests together.
    pub max_qps: u32,
    /// Maximum duration of a test with its warm-up.
    pub max_time: Duration,
    /// Maximum time to wait for a client during a test.
    pub max_timeout: Duration,
    /// Maximum message size in bytes.
    pub max_size: u64,
    /// Resources reserved by running tests.
    in_use: Arc<Mutex<Footprint>>,
}

impl Default for Rules {
    /// Returns the rules of a server that runs in the same process as its client: only the limits
    /// of this program apply.
    fn default() -> Self {
        Self {
            allow: Vec::new(),
            token: None,
            remote_quit: false,
            mesh: false,
            max_clients: DEFAULT_MAX_CLIENTS,
            max_memory: u64::MAX,
            max_threads: u32::MAX,
            max_qps: u32::MAX,
            max_time: UNLIMITED,
            max_timeout: Duration::MAX,
            max_size: MAX_MESSAGE,
            in_use: Arc::default(),
        }
    }
}

/// Resources reserved by a test. They are released on drop.
#[derive(Debug)]
pub struct Reservation {
    in_use: Arc<Mutex<Footprint>>,
    reserved: Footprint,
}

impl Reservation {
    /// Releases what exceeds `needed`, the resources of the test on its device.
    pub(crate) fn reduce_to(&mut self, needed: Footprint) {
        let kept = Footprint {
            memory: self.reserved.memory.min(needed.memory),
            threads: self.reserved.threads.min(needed.threads),
            qps: self.reserved.qps.min(needed.qps),
        };
        let mut in_use = lock(&self.in_use);
        in_use.memory -= self.reserved.memory - kept.memory;
        in_use.threads -= self.reserved.threads - kept.threads;
        in_use.qps -= self.reserved.qps - kept.qps;
        self.reserved = kept;
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.reduce_to(Footprint::default());
    }
}

fn lock(in_use: &Mutex<Footprint>) -> MutexGuard<'_, Footprint> {
    in_use.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Rules {
    /// Creates the rules from the options of a server.
    pub fn new(o: &ServerOptions) -> Result<Self> {
        let rules = Self {
            allow: o.allow.clone(),
            token: o.token_file.as_deref().map(Token::read).transpose()?,
            remote_quit: o.allow_quit,
            mesh: o.mesh,
            max_clients: o.max_clients.unwrap_or(DEFAULT_MAX_CLIENTS),
            max_memory: o.max_memory.unwrap_or(DEFAULT_MAX_MEMORY),
            max_threads: o.max_threads.unwrap_or(DEFAULT_MAX_THREADS),
            max_qps: o.max_qps.unwrap_or(DEFAULT_MAX_QPS),
            max_time: o.max_time.unwrap_or(DEFAULT_MAX_TIME),
            max_timeout: o.max_timeout.unwrap_or(DEFAULT_MAX_TIMEOUT),
            max_size: o.max_size.unwrap_or(MAX_MESSAGE),
            in_use: Arc::default(),
        };
        for (is_zero, option) in [
            (rules.max_clients == 0, "--max-clients"),
            (rules.max_memory == 0, "--max-memory"),
            (rules.max_threads == 0, "--max-threads"),
            (rules.max_qps == 0, "--max-qps"),
            (rules.max_time.is_zero(), "--max-time"),
            (rules.max_size == 0, "--max-size"),
        ] {
            if is_zero {
                return Err(Error::limit(format!("{option} must not be 0"))
                    .with_help(format!("omit {option} or set it higher")));
            }
        }
        if rules.max_timeout < MIN_MAX_TIMEOUT {
            return Err(Error::limit(format!(
                "--max-timeout of {}: the minimum is {}",
                show_time(rules.max_timeout),
                show_time(MIN_MAX_TIMEOUT)
            ))
            .with_help("omit --max-timeout or set it higher"));
        }
        Ok(rules)
    }

    /// Sets the maximum number of clients at a time.
    #[cfg(test)]
    pub(crate) fn with_max_clients(mut self, max_clients: u32) -> Self {
        self.max_clients = max_clients;
        self
    }

    /// Checks that a client with this address may be served.
    pub(crate) fn admit_host(&self, peer: IpAddr) -> Result<()> {
        networks::admit(&self.allow, peer)
    }

    /// Checks that this host may connect to a server in a mesh. This host itself is no exception:
    /// its other services may be reachable only from here.
    pub(crate) fn admit_mesh_peer(&self, peer: IpAddr) -> Result<()> {
        if networks::contain(&self.allow, peer) {
            return Ok(());
        }
        Err(Error::limit(format!(
            "servers at {} are not allowed",
            peer.to_canonical()
        ))
        .with_help("add the network to --allow on the server"))
    }

    /// Checks that this host may send data to an RDMA address that the client at `peer` named.
    pub(crate) fn admit_target(&self, peer: IpAddr, target: IpAddr) -> Result<()> {
        networks::admit_target(&self.allow, peer, target)
    }

    /// Checks that a coordinator may run tests from this host to other hosts.
    pub(crate) fn admit_mesh(&self) -> Result<()> {
        if self.mesh {
            return Ok(());
        }
        Err(Error::limit("the server does not run tests for a mesh")
            .with_help("start it with --mesh, and with --token-file or --allow"))
    }

    /// Checks that a test is within the limits and reserves its resources.
    ///
    /// # Errors
    /// Returns an error that names the exceeded limit and its option.
    pub fn admit(&self, spec: &Spec) -> Result<Reservation> {
        if spec.msg_size > self.max_size {
            return Err(Error::limit(format!(
                "message size {}: the server allows at most {}",
                Size(spec.msg_size),
                Size(self.max_size)
            ))
            .with_help("set --max-size higher on the server"));
        }
        if let Some(time) = duration(spec).filter(|time| *time > self.max_time) {
            let requested = if time >= UNLIMITED {
                "unlimited".to_owned()
            } else {
                show_time(time)
            };
            return Err(Error::limit(format!(
                "duration {requested}: the server allows at most {}",
                show_time(self.max_time)
            ))
            .with_help("set --max-time higher on the server, or to unlimited"));
        }
        let port = spec.sockets.port;
        if (1..FIRST_UNPRIVILEGED_PORT).contains(&port) {
            return Err(Error::limit(format!(
                "data port {port}: the server opens only ports from {FIRST_UNPRIVILEGED_PORT}"
            ))
            .with_help("set --ip-port (-ip) higher, or omit it"));
        }
        self.reserve(spec.footprint())
    }

    fn reserve(&self, needed: Footprint) -> Result<Reservation> {
        let mut in_use = lock(&self.in_use);
        let memory = in_use.memory.saturating_add(needed.memory);
        if memory > self.max_memory {
            return Err(Error::limit(format!(
                "buffers, queues and stacks of {}: the server allows {} for all tests together, of these {} are in use",
                Size(needed.memory),
                Size(self.max_memory),
                Size(in_use.memory)
            ))
            .with_help("set --max-memory higher on the server"));
        }
        let count = |what: &str, needed: u32, max: u32, in_use: u32, option: &str| {
            let sum = in_use.saturating_add(needed);
            if sum <= max {
                return Ok(sum);
            }
            Err(Error::limit(format!(
                "{needed} {what}: the server allows {max} for all tests together, of these {in_use} are in use"
            ))
            .with_help(format!("set {option} higher on the server")))
        };
        let threads = count(
            "threads",
            needed.threads,
            self.max_threads,
            in_use.threads,
            "--max-threads",
        )?;
        let qps = count(
            "queue pairs",
            needed.qps,
            self.max_qps,
            in_use.qps,
            "--max-qps",
        )?;
        *in_use = Footprint {
            memory,
            threads,
            qps,
        };
        Ok(Reservation {
            in_use: Arc::clone(&self.in_use),
            reserved: needed,
        })
    }

    /// Returns the time after which the connection of a test is closed, however active the client
    /// is.
    pub fn max_test_time(&self, spec: &Spec) -> Duration {
        duration(spec)
            .map_or(self.max_time, |time| time.min(self.max_time))
            .saturating_add(GRACE)
    }

    /// Checks that the client at `peer`, which is connected to this host's address `local`, may
    /// stop the server.
    pub(crate) fn admit_quit(&self, local: IpAddr, peer: IpAddr) -> Result<()> {
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
}

/// Returns the duration of a test with its warm-up; `None` if it is a number of messages.
fn duration(spec: &Spec) -> Option<Duration> {
    match spec.limit {
        Limit::Time(UNLIMITED) => Some(UNLIMITED),
        Limit::Time(time) => Some(time.saturating_add(spec.tuning.warm_up)),
        Limit::Messages(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use measure::spec::test::Test;
    use nix::ifaddrs::getifaddrs;

    /// Returns the rules of a server, with options that the function sets.
    fn rules_with(set: impl FnOnce(&mut ServerOptions)) -> Rules {
        let mut options = ServerOptions::default();
        set(&mut options);
        Rules::new(&options).unwrap()
    }

    /// Returns a specification, with options that the function sets.
    fn spec(test: Test, set: impl FnOnce(&mut Spec)) -> Spec {
        let mut spec = Spec::new(test);
        set(&mut spec);
        spec
    }

    fn networks(list: &[&str]) -> Vec<IpNet> {
        list.iter()
            .map(|network| network.parse().unwrap())
            .collect()
    }

    #[test]
    fn only_listed_networks_and_this_host_are_admitted() {
        let rules =
            rules_with(|o| o.allow = networks(&["10.1.0.0/16", "fd00::/8", "192.0.2.7/32"]));
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
        let rules = rules_with(|o| o.allow = networks(&["192.0.2.7/32"]));
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
        let rules = rules_with(|o| o.max_memory = Some(3 << 20));
        let spec = Spec::new(Test::TcpBw).with_msg_size(1 << 20);
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
    fn threads_and_queue_pairs_of_all_tests_are_limited() {
        let rules = rules_with(|o| (o.max_threads, o.max_qps) = (Some(5), Some(12)));
        let spec = |threads, qps| {
            spec(Test::RcBw, |s| {
                (s.threads, s.qps, s.depth) = (threads, qps, 8);
            })
        };
        let mut first = rules.admit(&spec(3, 3)).unwrap();
        for (threads, qps, option) in [(3, 1, "--max-threads"), (1, 4, "--max-qps")] {
            let text = rules.admit(&spec(threads, qps)).unwrap_err().to_string();
            assert!(text.contains(option) && text.contains("in use"), "{text}");
        }
        let second = rules.admit(&spec(2, 1)).unwrap();
        drop(second);
        first.reduce_to(Footprint {
            qps: 1,
            ..Footprint::default()
        });
        rules.admit(&spec(5, 1)).unwrap();
        drop(first);
        assert_eq!(*lock(&rules.in_use), Footprint::default());
    }

    #[test]
    fn queues_and_stacks_count_as_memory() {
        let rules = rules_with(|o| o.max_memory = Some(64 << 20));
        let spec = spec(Test::RcBw, |s| {
            (s.msg_size, s.depth, s.threads, s.qps) = (1, 16384, 64, 4);
        });
        let text = rules.admit(&spec).unwrap_err().to_string();
        assert!(text.contains("--max-memory"), "{text}");
        assert!(spec.footprint().memory > 670 << 20);
        rules.admit(&Spec::new(Test::RcBw)).unwrap();
    }

    #[test]
    fn errors_for_exceeded_limits_name_the_option() {
        let rules = rules_with(|o| {
            o.max_time = Some(Duration::from_secs(10));
            o.max_size = Some(1 << 20);
        });
        let time = |seconds| Limit::Time(Duration::from_secs(seconds));
        let unlimited = spec(Test::TcpBw, |s| s.limit = Limit::Time(UNLIMITED));
        let with_warm_up = spec(Test::RcBw, |s| {
            s.limit = time(6);
            s.tuning.warm_up = Duration::from_secs(5);
        });
        for (spec, option) in [
            (spec(Test::TcpBw, |s| s.limit = time(11)), "--max-time"),
            (with_warm_up, "--max-time"),
            (Spec::new(Test::TcpBw).with_msg_size(2 << 20), "--max-size"),
            (unlimited.clone(), "--max-time"),
        ] {
            let text = rules.admit(&spec).unwrap_err().to_string();
            assert!(text.contains(option), "{option}: {text}");
        }
        assert!(super::Rules::default().admit(&unlimited).is_ok());
        let server = rules_with(|o| o.max_time = Some(UNLIMITED));
        assert!(server.admit(&unlimited).is_ok());
        assert!(
            Rules::new(&ServerOptions {
                max_time: Some(Duration::ZERO),
                ..ServerOptions::default()
            })
            .unwrap_err()
            .to_string()
            .contains("--max-time")
        );
    }

    #[test]
    fn only_this_host_may_quit_by_default() {
        let [local, remote] = ["10.0.0.1", "10.0.0.2"].map(|ip| ip.parse().unwrap());
        assert!(rules_with(|_| ()).admit_quit(local, remote).is_err());
        assert!(rules_with(|_| ()).admit_quit(local, local).is_ok());
        assert!(
            rules_with(|_| ())
                .admit_quit(local, "::1".parse().unwrap())
                .is_ok()
        );
        assert!(
            rules_with(|o| o.allow_quit = true)
                .admit_quit(local, remote)
                .is_ok()
        );
    }
}
