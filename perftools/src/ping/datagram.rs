//! Pings by management datagrams, as ibping's.

use std::time::Duration;

use ibumad::mad::{Method, MgmtClass, Oui, VendorMad};
use ibumad::{Address, Agent, AgentOptions, Methods, Port, Received};

use super::name;
use super::stop::{GLANCE, Stop};
use super::way::{Heard, Way};
use crate::error::{Error, Result, tell};

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
pub struct Datagrams {
    agent: Agent,
    oui: Oui,
    to: Address,
    target: String,
    timeout: Duration,
    /// The transaction of ping 0.
    first: u32,
}

impl Datagrams {
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

    fn understand(&self, received: &Received) -> Heard {
        let seq = received.mad.low_transaction_id().wrapping_sub(self.first);
        if let Some(errno) = received.failure {
            return Heard::Failed {
                seq,
                why: errno.to_string(),
            };
        }
        if received.mad.method() != Method::GET_RESP {
            return Heard::Nothing;
        }
        match VendorMad::from_mad(&received.mad).filter(|vendor| vendor.oui() == self.oui) {
            Some(_) if !received.mad.status().is_ok() => Heard::Failed {
                seq,
                why: received.mad.status().to_string(),
            },
            Some(vendor) => Heard::Pong {
                seq,
                from: vendor.text(),
            },
            None => Heard::Nothing,
        }
    }
}

impl Way for Datagrams {
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

    fn wait(&mut self, time: Duration) -> Result<Heard> {
        let received = self.agent.recv(Some(time))?;
        Ok(received.map_or(Heard::Nothing, |received| self.understand(&received)))
    }
}

/// Answers pings at a port.
#[derive(Debug)]
pub struct Server {
    agent: Agent,
    name: Vec<u8>,
}

impl Server {
    /// Serves the class at this port of this adapter.
    ///
    /// # Errors
    /// The port cannot be opened, or another program serves the class there.
    pub fn new(ca: &str, port_num: u8, oui: Oui) -> Result<Self> {
        let port = Port::open(ca, port_num)?;
        Ok(Self {
            agent: port.register(class(oui, Methods::ALL))?,
            name: name::own(),
        })
    }

    /// Answers until it shall stop.
    ///
    /// # Errors
    /// The port is gone.
    pub fn run(&self, stop: &Stop, level: u8) -> Result<()> {
        while !stop.is_set() {
            let Some(received) = self.agent.recv(Some(GLANCE))? else {
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
                tell(format_args!(
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
                tell(format_args!(
                    "ribping: cannot answer {}: {error}",
                    received.from
                ));
            }
        }
        Ok(())
    }
}
