//! Agents, which send requests of one management class or serve them.

#![allow(unsafe_code)]

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rdma_sys::umad_reg_attr;
use rdma_types::convert::zero_or_errno;
use rdma_types::{Error, ErrorKind, Result, setters};

use crate::address::Address;
use crate::buffer::{self, Received};
use crate::error::call_failed;
use crate::mad::{Mad, Method, MgmtClass, OPENIB_OUI, Oui};
use crate::port::{Port, to_millis};

/// The set of methods whose requests an agent serves.
///
/// # Example
/// ```
/// use ibumad::{Methods, mad::Method};
/// let methods = Methods::NONE.with(Method::GET).with(Method::SET);
/// assert_ne!(methods, Methods::ALL);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Methods([u64; 2]);

impl Methods {
    /// No method: the agent only sends requests and receives their responses.
    pub const NONE: Self = Self([0; 2]);
    /// All methods.
    pub const ALL: Self = Self([u64::MAX; 2]);

    /// Adds a method to the set. Response methods cannot be served and are ignored.
    #[must_use]
    pub const fn with(mut self, method: Method) -> Self {
        if !method.is_response() {
            self.0[(method.0 / 64) as usize] |= 1 << (method.0 % 64);
        }
        self
    }
}

/// The parameters of an agent's registration.
///
/// # Example
/// ```
/// use ibumad::mad::{Method, MgmtClass};
/// use ibumad::{AgentOptions, Methods};
/// let methods = Methods::NONE.with(Method::GET);
/// let server = AgentOptions::client(MgmtClass::PERF, 1).methods(methods);
/// assert_eq!(server.rmpp_version, 0);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AgentOptions {
    /// Management class.
    pub class: MgmtClass,
    /// Version of the class.
    pub version: u8,
    /// Methods that the agent serves. Default: [`Methods::NONE`].
    pub methods: Methods,
    /// Organization that defined the class. Only used for vendor classes 0x30 to 0x4f. Default:
    /// `Oui([0; 3])`.
    pub oui: Oui,
    /// Version of RMPP, the protocol for messages of several datagrams. This crate supports only
    /// 0, which disables RMPP. Default: `0`.
    pub rmpp_version: u8,
}

setters! {
    AgentOptions {
        class: MgmtClass,
        version: u8,
        methods: Methods,
        oui: Oui,
        rmpp_version: u8,
    }
}

impl AgentOptions {
    /// Returns the options of a client of this class and version. A client serves no requests.
    pub const fn client(class: MgmtClass, version: u8) -> Self {
        Self {
            class,
            version,
            methods: Methods::NONE,
            oui: Oui([0; 3]),
            rmpp_version: 0,
        }
    }

    /// Returns the options of a client of `ibping`'s vendor class.
    pub const fn openib_ping() -> Self {
        Self::client(MgmtClass::OPENIB_PING, 1).oui(OPENIB_OUI)
    }
}

/// The time limit and the number of attempts of a request.
///
/// # Example
/// ```
/// use ibumad::RetryPolicy;
/// use std::time::Duration;
/// let policy = RetryPolicy::new().timeout(Duration::from_millis(100)).tries(5);
/// assert_eq!(policy.tries, 5);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RetryPolicy {
    /// Time limit of each attempt. Default: `1s`.
    pub timeout: Duration,
    /// Number of attempts; 0 counts as 1. Default: `3`.
    pub tries: u32,
}

impl RetryPolicy {
    /// Returns the policy of the infiniband-diags tools: three attempts of one second each.
    pub const fn new() -> Self {
        Self {
            timeout: Duration::from_secs(1),
            tries: 3,
        }
    }
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self::new()
    }
}

setters! {
    RetryPolicy {
        timeout: Duration,
        tries: u32,
    }
}

/// An agent: sends requests of one class through a port, or serves them. It is unregistered when
/// dropped.
///
/// # Example
/// ```no_run
/// use ibumad::mad::{Mad, Method, MgmtClass, AttrId};
/// use ibumad::{Address, AgentOptions, Lid, Port, RetryPolicy};
///
/// let port = Port::open("mlx4_0", 1)?;
/// let agent = port.register(AgentOptions::client(MgmtClass::PERF, 1))?;
/// let request = Mad::new(MgmtClass::PERF, 1, Method::GET, AttrId::CLASS_PORT_INFO);
/// let response = agent.call(request, &Address::lid(Lid(7)), RetryPolicy::new())?;
/// assert!(response.status().is_ok());
/// # Ok::<(), ibumad::Error>(())
/// ```
pub struct Agent {
    port: Port,
    id: u32,
    options: AgentOptions,
    next_transaction: AtomicU32,
}

impl Port {
    /// Registers an agent.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`]: another program already serves the same methods of the class,
    /// or a vendor class has no OUI.
    #[doc(alias = "umad_register2")]
    pub fn register(&self, options: AgentOptions) -> Result<Agent> {
        const CALL: &str = "umad_register2";
        let mut attr = umad_reg_attr {
            mgmt_class: options.class.0,
            mgmt_class_version: options.version,
            flags: 0,
            method_mask: options.methods.0,
            oui: options.oui.number(),
            rmpp_version: options.rmpp_version,
        };
        let mut id = 0;
        // SAFETY: `self` keeps the descriptor open; both pointers are to live locals.
        let returned = unsafe { rdma_sys::umad_register2(self.fd(), &raw mut attr, &raw mut id) };
        zero_or_errno(returned).map_err(|errno| {
            let (ca_name, port_num) = (self.ca_name(), self.port_num());
            let detail = format!("class {} on {ca_name} port {port_num}", options.class);
            call_failed(CALL, errno, detail)
        })?;
        // Each process starts at a different number, so that a late response to an earlier process
        // does not match a request of this one.
        let first = std::process::id().wrapping_mul(0x9e37_79b9);
        Ok(Agent {
            port: self.clone(),
            id,
            options,
            next_transaction: AtomicU32::new(first),
        })
    }
}

impl Agent {
    /// Returns the port at which the agent is registered.
    pub fn port(&self) -> &Port {
        &self.port
    }

    /// Returns the number of the agent at its port, which is also in [`Received::agent`].
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Returns the options of the registration.
    pub fn options(&self) -> &AgentOptions {
        &self.options
    }

    /// Returns a transaction identifier that differs from those of the agent's other requests.
    pub fn next_transaction_id(&self) -> u32 {
        self.next_transaction.fetch_add(1, Ordering::Relaxed)
    }

    /// Sends a request. If no response arrives within `timeout`, the kernel returns the request
    /// through [`recv`](Self::recv), with [`Received::failure`] set. A later response is dropped.
    ///
    /// The transaction identifier must differ from those of the agent's outstanding requests.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`]: the address cannot be used on this port. RoCE requires a global
    /// route.
    #[doc(alias = "umad_send")]
    pub fn send(&self, mad: &Mad, to: &Address, timeout: Duration) -> Result<()> {
        // A timeout of 0 would mean that no response is expected.
        let timeout_ms = to_millis(timeout).max(1);
        buffer::send(self.port.fd(), self.id as i32, mad, to, timeout_ms, 0)
    }

    /// Sends a datagram to which no response is expected, usually a response itself.
    ///
    /// # Errors
    /// The same as those of [`send`](Self::send).
    pub fn send_without_response(&self, mad: &Mad, to: &Address) -> Result<()> {
        buffer::send(self.port.fd(), self.id as i32, mad, to, 0, 0)
    }

    /// Receives the next datagram for this agent. Waits for at most `timeout`, or without limit if
    /// it is `None`.
    ///
    /// Returns `Ok(None)` after the timeout. It can also return `Ok(None)` earlier, after a signal
    /// or after a datagram for another agent of the port. Such a datagram is dropped.
    ///
    /// # Errors
    /// The same as those of [`Port::recv`].
    pub fn recv(&self, timeout: Option<Duration>) -> Result<Option<Received>> {
        let received = self.port.recv(timeout)?;
        Ok(received.filter(|received| received.agent == self.id))
    }

    /// Sends a request and returns its response. The request is sent again after each timeout, up
    /// to the number of attempts in `retry`. Sets the transaction identifier.
    ///
    /// # Errors
    /// - [`ErrorKind::TimedOut`]: no response arrived;
    /// - [`ErrorKind::Refused`]: the response has an error status;
    /// - those of [`send`](Self::send).
    pub fn call(&self, mut mad: Mad, to: &Address, retry: RetryPolicy) -> Result<Mad> {
        let tries = retry.tries.max(1);
        for _ in 0..tries {
            let id = self.next_transaction_id();
            mad.set_low_transaction_id(id);
            self.send(&mad, to, retry.timeout)?;
            if let Some(response) = self.response_to(id, retry.timeout)? {
                return check_status(response, to);
            }
        }
        let (attr, timeout) = (mad.attr(), retry.timeout);
        let detail =
            format!("{attr} of {to}: no response after {tries} attempts of {timeout:?} each");
        Err(Error::new(
            ErrorKind::TimedOut,
            "management request",
            detail,
        ))
    }

    /// Waits for the response to a request. Returns `None` if it does not arrive in time.
    fn response_to(&self, id: u32, timeout: Duration) -> Result<Option<Mad>> {
        let deadline = Instant::now().checked_add(timeout);
        loop {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let received = self.recv(left)?;
            let of_request = received.filter(|other| other.mad.low_transaction_id() == id);
            if let Some(received) = of_request {
                // The kernel returns the request itself after the timeout.
                if received.failure.is_some() {
                    return Ok(None);
                }
                // An agent that serves requests also receives those of others, which choose the
                // transaction identifier.
                if is_response(&received.mad) {
                    return Ok(Some(received.mad));
                }
            }
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(None);
            }
        }
    }
}

/// Returns `true` for the datagrams that the kernel passes to the sender of a request
/// (`ib_response_mad`).
fn is_response(mad: &Mad) -> bool {
    mad.method().is_response()
        || mad.method() == Method::TRAP_REPRESS
        || mad.class() == MgmtClass::BM && mad.attr_modifier() & 1 != 0
}

fn check_status(response: Mad, to: &Address) -> Result<Mad> {
    let status = response.status();
    if status.is_ok() {
        return Ok(response);
    }
    Err(Error::new(
        ErrorKind::Refused,
        "management request",
        format!("{} of {to}: {status}", response.attr()),
    ))
}

impl Drop for Agent {
    fn drop(&mut self) {
        // SAFETY: the agent was registered at this descriptor, which `port` keeps open, and is
        // unregistered only here.
        if unsafe { rdma_sys::umad_unregister(self.port.fd(), self.id as i32) } != 0 {
            rdma_types::count_leaked_object();
        }
    }
}

impl fmt::Debug for Agent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Agent")
            .field("port", &self.port)
            .field("id", &self.id)
            .field("options", &self.options)
            .finish()
    }
}

#[cfg(test)]
impl Agent {
    /// Returns agent 7 of a new port, whose first transaction identifier is 100.
    pub(crate) fn fake(class: MgmtClass) -> (Self, crate::fake::Kernel) {
        let (port, kernel) = crate::fake::port();
        let agent = Self {
            port,
            id: 7,
            options: AgentOptions::client(class, 1),
            next_transaction: AtomicU32::new(100),
        };
        (agent, kernel)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::thread;

    use rdma_types::Lid;

    use super::*;
    use crate::fake::Kernel;
    use crate::mad::AttrId;

    fn request() -> Mad {
        Mad::new(MgmtClass::PERF, 1, Method::GET, AttrId::CLASS_PORT_INFO)
    }

    fn no_time() -> RetryPolicy {
        RetryPolicy::new().timeout(Duration::ZERO)
    }

    /// Calls an agent, whose requests have the transaction identifiers 100, 101 …
    fn call(agent: &Agent, retry: RetryPolicy) -> Result<Mad> {
        agent.call(request(), &Address::lid(Lid(4)), retry)
    }

    /// Returns the transaction identifiers of the requests that were sent.
    fn sent(kernel: &Kernel) -> Vec<u32> {
        let ids = || kernel.sent().map(|sent| sent.mad.low_transaction_id());
        std::iter::from_fn(ids).collect()
    }

    #[test]
    fn only_the_response_to_the_request_is_returned() {
        let (agent, kernel) = Agent::fake(MgmtClass::PERF);
        let mark = |mark| move |mad: &mut Mad| mad.as_bytes_mut()[255] = mark;
        kernel.respond(8, 100, &request(), mark(1)); // to another agent
        kernel.respond(7, 99, &request(), mark(2)); // to another request
        let mut foreign = request();
        foreign.set_low_transaction_id(100);
        kernel.pass(7, 0, foreign.as_bytes()); // a request
        kernel.respond(7, 100, &request(), mark(3));
        let response = call(&agent, RetryPolicy::new()).expect("a response");
        assert_eq!(response.as_bytes()[255], 3);
        assert_eq!(sent(&kernel), [100]);
    }

    #[test]
    fn unusual_responses_are_recognized() {
        let mut mad = request();
        assert!(!is_response(&mad));
        mad.set_attr_modifier(1);
        assert!(!is_response(&mad), "only of the class BM");
        let new = |class, method| Mad::new(class, 1, method, AttrId(0));
        assert!(is_response(&new(MgmtClass::PERF, Method::TRAP_REPRESS)));
        let mut managed = new(MgmtClass::BM, Method::SEND);
        assert!(!is_response(&managed));
        managed.set_attr_modifier(3);
        assert!(is_response(&managed));
    }

    #[test]
    fn a_returned_request_is_sent_again() {
        let (agent, kernel) = Agent::fake(MgmtClass::PERF);
        let mut returned = request();
        returned.set_low_transaction_id(100);
        kernel.pass(7, libc::ETIMEDOUT.unsigned_abs(), returned.as_bytes());
        // The response to the first attempt is late.
        kernel.respond(7, 100, &request(), |mad| mad.as_bytes_mut()[255] = 1);
        kernel.respond(7, 101, &request(), |mad| mad.as_bytes_mut()[255] = 2);
        let response = call(&agent, RetryPolicy::new()).expect("a response");
        assert_eq!(response.as_bytes()[255], 2);
        assert_eq!(sent(&kernel), [100, 101]);
    }

    #[test]
    fn a_request_without_response_times_out_after_its_attempts() {
        for (tries, expected) in [(0, &[100][..]), (1, &[100]), (3, &[100, 101, 102])] {
            let (agent, kernel) = Agent::fake(MgmtClass::PERF);
            let error = call(&agent, no_time().tries(tries)).expect_err("no response");
            assert_eq!(error.kind(), ErrorKind::TimedOut);
            let attempts = expected.len();
            assert_eq!(
                error.to_string(),
                format!(
                    "management request: ClassPortInfo of LID 4: no response after {attempts} \
                     attempts of 0ns each"
                )
            );
            assert_eq!(sent(&kernel), expected);
        }
    }

    #[test]
    fn other_datagrams_do_not_extend_the_time_limit() {
        let (agent, kernel) = Agent::fake(MgmtClass::PERF);
        let ended = AtomicBool::new(false);
        let start = Instant::now();
        thread::scope(|scope| {
            scope.spawn(|| {
                let limit = Duration::from_secs(20);
                while !ended.load(Ordering::Relaxed) && start.elapsed() < limit {
                    kernel.respond(7, 9, &request(), |_| ());
                    thread::sleep(Duration::from_millis(1));
                }
            });
            let retry = RetryPolicy::new().timeout(Duration::from_millis(20));
            let error = call(&agent, retry.tries(1)).expect_err("no response");
            ended.store(true, Ordering::Relaxed);
            assert_eq!(error.kind(), ErrorKind::TimedOut);
        });
        assert!(start.elapsed() >= Duration::from_millis(20));
        assert!(start.elapsed() < Duration::from_secs(20));

        // Nor if there is always another one.
        let (agent, kernel) = Agent::fake(MgmtClass::PERF);
        for _ in 0..3 {
            kernel.respond(7, 9, &request(), |_| ());
        }
        call(&agent, no_time().tries(1)).expect_err("no response");
        assert!(agent.recv(Some(Duration::ZERO)).expect("open").is_some());
    }

    #[test]
    fn an_error_status_is_an_error() {
        let (agent, kernel) = Agent::fake(MgmtClass::PERF);
        kernel.respond(7, 100, &request(), |mad| mad.as_bytes_mut()[5] = 0x0c);
        let error = call(&agent, RetryPolicy::new()).expect_err("a status");
        assert_eq!(error.kind(), ErrorKind::Refused);
        assert_eq!(
            error.to_string(),
            "management request: ClassPortInfo of LID 4: attribute not supported by the method \
             (status 0x000c)"
        );
    }

    #[test]
    fn a_request_has_a_time_limit_and_a_response_has_none() {
        let (agent, kernel) = Agent::fake(MgmtClass::PERF);
        let to = Address::lid(Lid(4));
        agent.send(&request(), &to, Duration::ZERO).expect("sent");
        let sent = kernel.sent().expect("a datagram");
        assert_eq!((sent.agent, sent.timeout_ms, sent.retries), (7, 1, 0));
        agent
            .send(&request(), &to, Duration::from_secs(2))
            .expect("sent");
        assert_eq!(kernel.sent().expect("a datagram").timeout_ms, 2000);
        agent.send_without_response(&request(), &to).expect("sent");
        assert_eq!(kernel.sent().expect("a datagram").timeout_ms, 0);
    }

    #[test]
    fn an_agent_is_unregistered_when_it_is_dropped() {
        let (agent, _kernel) = Agent::fake(MgmtClass::OPENIB_PING);
        assert_eq!((agent.id(), agent.port().ca_name()), (7, "fake0"));
        assert_eq!(agent.options().class, MgmtClass::OPENIB_PING);
        drop(agent);
        // The socket knows no agents, so this fails.
        assert!(rdma_types::leaked_objects() > 0);
    }

    #[test]
    fn options_of_a_ping_name_its_organization() {
        let options = AgentOptions::openib_ping();
        assert_eq!(options.class, MgmtClass::OPENIB_PING);
        assert_eq!((options.version, options.oui), (1, OPENIB_OUI));
    }

    #[test]
    fn method_set_has_a_bit_per_request_method() {
        assert_eq!(
            Methods::NONE.with(Method::GET).with(Method::SET),
            Methods([0b110, 0])
        );
        assert_eq!(Methods::NONE.with(Method(0x41)), Methods([0, 0b10]));
        assert_eq!(Methods::NONE.with(Method::GET_RESP), Methods::NONE);
    }
}
