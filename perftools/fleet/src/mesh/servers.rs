//! Runs the tests of a mesh between `rperf` servers.

use std::collections::{HashMap, HashSet};
use std::sync::mpsc::channel;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base::error::{Error, Kind, Result};
use base::interrupt::Interrupt;
use base::threads::spawn_scoped_with_stack;
use measure::spec::{Limit, ResultLimits, Spec};
use report::limits::exceeded;
use report::record::Measured;
use session::connect::{self, ServerAddr};
use session::diagnosis::EncodedRecord;
use session::protocol::token::Token;
use session::rperf::coordinator::RemoteTest;
use session::rperf::message::ClientRequest;

use super::cell::{Cell, CellDetail, CellFigure};
use super::coordinator::Transport;
use super::endpoint::Endpoint;
use super::record::MeshTest;
use super::schedule::Pair;

/// Time to retry a connection to a host that did not respond before.
const SHORT_WAIT: Duration = Duration::from_millis(300);
/// Time limit for each reply of a host that did not respond before.
const SHORT_REPLY: Duration = Duration::from_secs(1);
/// Time that tests with a common start may take to connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// Time limit for a test that ends after a number of messages.
const MESSAGES_TIMEOUT: Duration = Duration::from_secs(3600);
/// Stack of the threads that wait for servers.
const STACK: usize = 256 << 10;

/// Runs tests between servers.
#[derive(Debug)]
pub struct Servers {
    endpoints: Vec<Endpoint>,
    token: Option<Token>,
    wait: Duration,
    /// Limits of the results, by the label of the test.
    limits: HashMap<String, ResultLimits>,
    /// Hosts that did not respond to the last connection.
    silent: Mutex<HashSet<(String, u16)>>,
}

impl Servers {
    /// Creates the transport. Connections to servers are retried for up to `wait`. `limits` are
    /// those of the results, by the label of the test.
    pub fn new(
        endpoints: Vec<Endpoint>,
        token: Option<Token>,
        wait: Duration,
        limits: HashMap<String, ResultLimits>,
    ) -> Self {
        Self {
            endpoints,
            token,
            wait,
            limits,
            silent: Mutex::default(),
        }
    }

    fn endpoint(&self, id: u32) -> &Endpoint {
        &self.endpoints[id as usize]
    }

    /// Returns `true` if a host did not respond to the last connection.
    fn is_silent(&self, endpoint: &Endpoint) -> bool {
        lock(&self.silent).contains(&(endpoint.host.clone(), endpoint.port))
    }

    /// Calls `connect` with the address of a host and the time limit for its replies: `timeout`, or
    /// less if it did not respond before. Remembers if it responds.
    fn connect<T>(
        &self,
        endpoint: &Endpoint,
        timeout: Duration,
        connect: impl FnOnce(&ServerAddr, Duration) -> Result<T>,
    ) -> Result<T> {
        let (wait, timeout) = if self.is_silent(endpoint) {
            (self.wait.min(SHORT_WAIT), timeout.min(SHORT_REPLY))
        } else {
            (self.wait, timeout)
        };
        let address = ServerAddr {
            host: endpoint.host.clone(),
            port: endpoint.port,
            wait,
            bind: None,
            token: self.token.clone(),
            qperf: false,
            interrupt: Interrupt::default(),
        };
        let connected = connect(&address, timeout);
        let host = (endpoint.host.clone(), endpoint.port);
        match &connected {
            Ok(_) => lock(&self.silent).remove(&host),
            Err(error) if matches!(error.kind(), Kind::System | Kind::Test | Kind::Gone) => {
                lock(&self.silent).insert(host)
            }
            Err(_) => false,
        };
        connected.map_err(|error| {
            let error = match error.kind() {
                Kind::Test => error.with_help(format!(
                    "check that host {} is up and not overloaded: it accepts connections, but `rperf` there does not reply",
                    endpoint.host
                )),
                _ => error,
            };
            error.context(&endpoint.name)
        })
    }

    /// Requests a test from the server of its client.
    fn request(&self, test: &MeshTest, pair: Pair, common_start: bool) -> Result<RemoteTest> {
        let (from, to) = (self.endpoint(pair.from), self.endpoint(pair.to));
        let timeout = test.spec.client.timeout;
        if self.is_silent(to) {
            // The client of the test would wait for it much longer.
            self.connect(to, timeout, connect::open_rperf)?;
        }
        let request = ClientRequest {
            spec: spec(test, from, to, common_start),
            host: to.host.clone(),
            port: to.port,
            wait: self.wait,
            common_start,
        };
        let limit = time_limit(&request);
        self.connect(from, timeout, |address, timeout| {
            RemoteTest::request(&from.name, address, timeout, request, limit)
        })
    }

    /// Returns the cell of a result. A result that cannot be compared with its limits is a failure.
    fn cell(&self, test: &MeshTest, pair: Pair, result: Result<EncodedRecord>) -> Cell {
        let limits = self.limits.get(&test.label).copied().unwrap_or_default();
        let checked = result.and_then(|result| {
            let measured = Measured::parse(&result.0)?;
            Ok((exceeded(&limits, &measured)?, measured))
        });
        match checked {
            Ok((exceeded, measured)) => Cell::measured(pair, 0, &measured, exceeded),
            Err(error) => Cell::failed(pair, 0, error.to_string()),
        }
    }

    /// Runs one test, at the same time as others if it has a common start.
    fn run_one(
        &self,
        test: &MeshTest,
        pair: Pair,
        common: Option<&CommonStart>,
    ) -> Result<EncodedRecord> {
        let Some(common) = common else {
            return self.request(test, pair, false)?.result();
        };
        let connected = self.request(test, pair, true).and_then(|mut remote| {
            remote.wait_until_connected()?;
            Ok(remote)
        });
        // The others do not wait for a test that failed.
        common.leave();
        let mut remote = connected?;
        common.wait()?;
        remote.start()?;
        remote.result()
    }
}

/// Returns the specification of a test between two endpoints.
fn spec(test: &MeshTest, from: &Endpoint, to: &Endpoint, common_start: bool) -> Spec {
    let mut spec = test.spec.clone();
    spec.client.id = from.device.clone().or(spec.client.id);
    spec.server.id = to.device.clone().or(spec.server.id);
    if common_start {
        // While the other tests connect, both ends wait.
        for side in [&mut spec.client, &mut spec.server] {
            side.timeout = side.timeout.max(CONNECT_TIMEOUT);
        }
    }
    spec
}

/// Returns the time that a test may take, with a generous allowance.
fn time_limit(request: &ClientRequest) -> Duration {
    let spec = &request.spec;
    let test = match spec.limit {
        Limit::Time(time) => time + spec.tuning.warm_up,
        Limit::Messages(_) => MESSAGES_TIMEOUT,
    };
    test + request.wait + 4 * spec.client.timeout + Duration::from_secs(60)
}

impl Transport for Servers {
    fn run(
        &self,
        test: &MeshTest,
        pairs: &[Pair],
        common_start: bool,
        on_cell: &mut dyn FnMut(Pair, CellFigure, Option<Box<CellDetail>>),
    ) {
        let common = common_start.then(|| CommonStart::new(pairs.len()));
        let (sender, results) = channel();
        std::thread::scope(|scope| {
            for pair in pairs {
                let (sender, common) = (sender.clone(), common.as_ref());
                let run = move || {
                    let _ = sender.send((*pair, self.run_one(test, *pair, common)));
                };
                if let Err(error) = spawn_scoped_with_stack(scope, "test", STACK, run) {
                    if let Some(common) = &common {
                        common.leave();
                    }
                    on_cell(*pair, CellFigure::Failed(error.to_string().into()), None);
                }
            }
            drop(sender);
            for (pair, result) in results {
                let cell = self.cell(test, pair, result);
                on_cell(pair, cell.figure, cell.detail);
            }
        });
    }
}

/// The point at which tests wait for each other.
#[derive(Debug)]
struct CommonStart {
    /// Number of tests that are neither connected nor failed.
    missing: Mutex<usize>,
    changed: Condvar,
}

impl CommonStart {
    fn new(tests: usize) -> Self {
        Self {
            missing: Mutex::new(tests),
            changed: Condvar::new(),
        }
    }

    /// Counts a test that is connected or has failed.
    fn leave(&self) {
        *lock(&self.missing) -= 1;
        self.changed.notify_all();
    }

    /// Waits until all tests are connected or have failed.
    fn wait(&self) -> Result<()> {
        let missing = lock(&self.missing);
        let waited = self
            .changed
            .wait_timeout_while(missing, CONNECT_TIMEOUT, |missing| *missing > 0);
        let (missing, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if *missing > 0 {
            return Err(Error::test("the other tests of the round did not connect"));
        }
        Ok(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
