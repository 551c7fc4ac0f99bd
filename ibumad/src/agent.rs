//! An agent: who sends requests of a class, or serves them.

#![allow(unsafe_code)]

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rdma_sys::umad_reg_attr;

use crate::address::Address;
use crate::buffer::{self, Received};
use crate::convert::zero_or_errno;
use crate::error::{Error, Result};
use crate::kind::ErrorKind;
use crate::leak;
use crate::mad::{Mad, Method, MgmtClass, OPENIB_OUI, Oui};
use crate::port::{Port, millis};

/// Which requests of its class an agent serves: a set of methods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Methods([u64; 2]);

impl Methods {
    /// None: the agent only sends requests and gets their answers.
    pub const NONE: Self = Self([0; 2]);
    /// All.
    pub const ALL: Self = Self([u64::MAX; 2]);

    /// This set and a method. Answers cannot be served; for them this does nothing.
    #[must_use]
    pub const fn with(mut self, method: Method) -> Self {
        if !method.is_response() {
            self.0[(method.0 / 64) as usize] |= 1 << (method.0 % 64);
        }
        self
    }
}

/// What an agent is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AgentOptions {
    /// The class.
    pub class: MgmtClass,
    /// The class's version.
    pub version: u8,
    /// Requests that it serves.
    pub methods: Methods,
    /// Whose class it is, for the vendors' second range (0x30 to 0x4f); else of no meaning.
    pub oui: Oui,
    /// Version of the protocol for more than one datagram; 0 is none, all that this crate does.
    pub rmpp_version: u8,
}

impl AgentOptions {
    /// A client of this class and version.
    pub const fn client(class: MgmtClass, version: u8) -> Self {
        Self {
            class,
            version,
            methods: Methods::NONE,
            oui: Oui([0; 3]),
            rmpp_version: 0,
        }
    }

    /// A client of `ibping`'s class.
    pub const fn openib_ping() -> Self {
        Self {
            oui: OPENIB_OUI,
            ..Self::client(MgmtClass::OPENIB_PING, 1)
        }
    }
}

/// How long to wait for an answer, and how often to ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// For each request.
    pub timeout: Duration,
    /// Requests sent, at least one.
    pub tries: u32,
}

impl Default for Patience {
    /// What the tools of infiniband-diags do: a second, three times.
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(1),
            tries: 3,
        }
    }
}

/// An agent: who sends requests of a class through a port, or serves them. Unregistered when
/// dropped.
pub struct Agent {
    port: Port,
    id: u32,
    options: AgentOptions,
    next: AtomicU32,
}

impl Port {
    /// Registers an agent.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] when another program serves the same methods of the class
    /// already, or a vendor class has no OUI.
    ///
    /// # References
    /// [`umad_register2(3)`](https://man7.org/linux/man-pages/man3/umad_register2.3.html)
    pub fn register(&self, options: AgentOptions) -> Result<Agent> {
        let mut attr = umad_reg_attr {
            mgmt_class: options.class.0,
            mgmt_class_version: options.version,
            flags: 0,
            method_mask: options.methods.0,
            oui: if options.class.has_oui() {
                options.oui.number()
            } else {
                0
            },
            rmpp_version: options.rmpp_version,
        };
        let mut id = 0;
        let what = || {
            format!(
                "class {} on {} port {}",
                options.class,
                self.ca_name(),
                self.port_num()
            )
        };
        // SAFETY: the descriptor is open, both structures are valid for reading and writing.
        zero_or_errno("umad_register2", what, unsafe {
            rdma_sys::umad_register2(self.fd(), &raw mut attr, &raw mut id)
        })?;
        // Not from 0, so that an answer to an earlier program is not taken for one to this.
        let first = std::process::id().wrapping_mul(0x9e37_79b9);
        Ok(Agent {
            port: self.clone(),
            id,
            options,
            next: AtomicU32::new(first),
        })
    }
}

impl Agent {
    /// The port that it is registered at.
    pub fn port(&self) -> &Port {
        &self.port
    }

    /// Its number at that port, as in [`Received::agent`].
    pub fn id(&self) -> u32 {
        self.id
    }

    /// What it was registered for.
    pub fn options(&self) -> &AgentOptions {
        &self.options
    }

    /// A transaction identifier that no other request of this agent has.
    pub fn next_transaction_id(&self) -> u32 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Sends a request. The kernel keeps it for `timeout` and gives it back through
    /// [`recv`](Self::recv) when no answer came ([`Received::failure`]); an answer that comes
    /// later is dropped.
    ///
    /// The transaction identifier must not be that of another request that still waits.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] when the address cannot be used on this port: RoCE wants a
    /// global route.
    ///
    /// # References
    /// [`umad_send(3)`](https://man7.org/linux/man-pages/man3/umad_send.3.html)
    pub fn send(&self, mad: &Mad, to: &Address, timeout: Duration) -> Result<()> {
        buffer::send(
            self.port.fd(),
            self.id as i32,
            mad,
            to,
            millis(timeout).max(1),
            0,
        )
    }

    /// Sends a datagram that nobody answers, above all an answer: with a time, the kernel would
    /// report it as unanswered.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn send_unanswered(&self, mad: &Mad, to: &Address) -> Result<()> {
        buffer::send(self.port.fd(), self.id as i32, mad, to, 0, 0)
    }

    /// Takes the next datagram for this agent, or waits for it, at most for `timeout` (for ever
    /// when `None`). `Ok(None)` when the time is over, or earlier when a signal or a datagram
    /// for another agent of the port came (which is dropped).
    ///
    /// # Errors
    /// As [`Port::recv`].
    pub fn recv(&self, timeout: Option<Duration>) -> Result<Option<Received>> {
        Ok(self
            .port
            .recv(timeout)?
            .filter(|received| received.agent == self.id))
    }

    /// Sends a request until its answer comes. Its transaction identifier is set here.
    ///
    /// # Errors
    /// - [`ErrorKind::TimedOut`]: no answer;
    /// - [`ErrorKind::Refused`]: an answer with an error status;
    /// - as [`send`](Self::send).
    pub fn call(&self, mut mad: Mad, to: &Address, patience: Patience) -> Result<Mad> {
        let tries = patience.tries.max(1);
        for _ in 0..tries {
            let id = self.next_transaction_id();
            mad.set_low_transaction_id(id);
            self.send(&mad, to, patience.timeout)?;
            if let Some(answer) = self.answer_to(id, patience.timeout)? {
                return Self::checked(answer, to);
            }
        }
        let what = format!(
            "{} of {}: no answer to {tries} requests in {:?} each",
            mad.attr(),
            to,
            patience.timeout
        );
        Err(Error::new(ErrorKind::TimedOut, "management request", what))
    }

    /// Waits for the answer to a request; `None` when it did not come.
    fn answer_to(&self, id: u32, timeout: Duration) -> Result<Option<Mad>> {
        let deadline = Instant::now().checked_add(timeout);
        loop {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if let Some(received) = self.recv(left)? {
                if received.mad.low_transaction_id() == id {
                    // Given back by the kernel, or the answer.
                    return Ok(received.failure.is_none().then_some(received.mad));
                }
            } else if left.is_some_and(|left| left.is_zero()) {
                return Ok(None);
            }
        }
    }

    fn checked(answer: Mad, to: &Address) -> Result<Mad> {
        let status = answer.status();
        if status.is_ok() {
            return Ok(answer);
        }
        Err(Error::new(
            ErrorKind::Refused,
            "management request",
            format!("{} of {to}: {status}", answer.attr()),
        ))
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // SAFETY: registered at this descriptor, which is still open, and unregistered once.
        if unsafe { rdma_sys::umad_unregister(self.port.fd(), self.id as i32) } != 0 {
            leak::count();
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
mod tests {
    use super::*;

    #[test]
    fn a_set_of_methods_has_a_bit_for_each() {
        assert_eq!(
            Methods::NONE.with(Method::GET).with(Method::SET),
            Methods([0b110, 0])
        );
        assert_eq!(Methods::NONE.with(Method(0x41)), Methods([0, 0b10]));
        assert_eq!(Methods::NONE.with(Method::GET_RESP), Methods::NONE);
    }
}
