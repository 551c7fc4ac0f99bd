//! Pings by management datagrams, as ibping's.

use std::time::Duration;

use ibumad::mad::{Method, MgmtClass, Oui, VendorMad};
use ibumad::{Address, Agent, AgentOptions, Methods, Port, Received};

use super::host_name;
use super::stop::{POLL_INTERVAL, StopFlag};
use super::transport::{PingEvent, PingTransport};
use crate::common::error::{Error, Result, log};

/// The class `ibping` of this OUI.
fn class(oui: Oui, methods: Methods) -> AgentOptions {
    AgentOptions {
        oui,
        methods,
        ..AgentOptions::openib_ping()
    }
}

/// Pings by management datagrams.
#[derive(Debug)]
pub struct UmadPinger {
    agent: Agent,
    oui: Oui,
    to: Address,
    target: String,
    timeout: Duration,
    /// The transaction of ping 0.
    first: u32,
}

impl UmadPinger {
    /// From this port to this address, which is called `target`.
    ///
    /// # Errors
    /// The port refuses the class.
    pub fn new(
        port: &Port,
        to: Address,
        target: String,
        oui: Oui,
        timeout: Duration,
    ) -> Result<Self> {
        let agent = port.register(class(oui, Methods::NONE))?;
        let first = agent.next_transaction_id();
        Ok(Self {
            agent,
            oui,
            to,
            target,
            timeout,
            first,
        })
    }

    fn understand(&self, received: &Received) -> PingEvent {
        let seq = received.mad.low_transaction_id().wrapping_sub(self.first);
        if let Some(errno) = received.failure {
            return PingEvent::Failed {
                seq,
                why: errno.to_string(),
            };
        }
        if received.mad.method() != Method::GET_RESP {
            return PingEvent::Nothing;
        }
        match VendorMad::from_mad(&received.mad).filter(|vendor| vendor.oui() == self.oui) {
            Some(_) if !received.mad.status().is_ok() => PingEvent::Failed {
                seq,
                why: received.mad.status().to_string(),
            },
            Some(vendor) => PingEvent::Pong {
                seq,
                from: vendor.text(),
            },
            None => PingEvent::Nothing,
        }
    }
}

impl PingTransport for UmadPinger {
    fn target(&self) -> String {
        self.target.clone()
    }

    fn name(&self) -> &'static str {
        "umad"
    }

    fn device(&self) -> String {
        self.agent.port().ca_name().to_owned()
    }

    fn port(&self) -> u8 {
        self.agent.port().port_num()
    }

    fn send(&mut self, seq: u32) -> Result<()> {
        let mut ping = VendorMad::request(MgmtClass::OPENIB_PING, self.oui, b"");
        ping.set_low_transaction_id(self.first.wrapping_add(seq));
        self.agent
            .send(&ping, &self.to, self.timeout)
            .map_err(Error::from)
    }

    fn wait(&mut self, time: Duration) -> Result<PingEvent> {
        let received = self.agent.recv(Some(time))?;
        Ok(received.map_or(PingEvent::Nothing, |received| self.understand(&received)))
    }
}

/// Answers pings at a port.
#[derive(Debug)]
pub struct UmadServer {
    agent: Agent,
    name: Vec<u8>,
}

impl UmadServer {
    /// Serves the class at this port of this adapter.
    ///
    /// # Errors
    /// The port cannot be opened, or another program serves the class there.
    pub fn new(ca: &str, port_num: u8, oui: Oui) -> Result<Self> {
        let port = Port::open(ca, port_num)?;
        Ok(Self {
            agent: port.register(class(oui, Methods::ALL))?,
            name: host_name::nul_terminated(),
        })
    }

    /// Answers until it shall stop.
    ///
    /// # Errors
    /// The port is gone.
    pub fn run(&self, stop: &StopFlag, level: u8) -> Result<()> {
        while !stop.is_set() {
            let Some(received) = self.agent.recv(Some(POLL_INTERVAL))? else {
                continue;
            };
            // An answer is sent without a time and so never comes back; whatever else has failed is
            // none of a server's business.
            if received.failure.is_some() || received.mad.method().is_response() {
                continue;
            }
            let Some(ping) = VendorMad::from_mad(&received.mad) else {
                continue;
            };
            if level > 0 {
                log(format_args!(
                    "ribping: ping from {} at {} port {}",
                    received.from,
                    self.agent.port().ca_name(),
                    self.agent.port().port_num()
                ));
            }
            // A pinger that is gone must not end the server.
            if let Err(error) = self
                .agent
                .send_without_response(&ping.response(&self.name), &received.from.reply())
            {
                log(format_args!(
                    "ribping: cannot answer {}: {error}",
                    received.from
                ));
            }
        }
        Ok(())
    }
}
