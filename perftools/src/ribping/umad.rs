//! Pings with management datagrams, compatible with ibping.

use std::time::Duration;

use base::error::{Error, Result};
use base::log::log;
use ibumad::mad::{Method, MgmtClass, Oui, VendorMad};
use ibumad::{
    Address, Agent, AgentOptions, Lid, Methods, Port, PortState, Received, RetryPolicy, Target,
};

use super::host_name;
use super::stop::{POLL_INTERVAL, StopFlag};
use super::transport::{NO_REPLY, PingEvent, PingTransport};

/// Returns the options of an agent for ibping's management class with this OUI.
fn agent_options(oui: Oui, methods: Methods) -> AgentOptions {
    AgentOptions::openib_ping().oui(oui).methods(methods)
}

/// Sends pings with management datagrams.
#[derive(Debug)]
pub(super) struct UmadPinger {
    agent: Agent,
    oui: Oui,
    to: Address,
    target: String,
    timeout: Duration,
    lid: Option<Lid>,
    /// Transaction ID of the ping with sequence number 0.
    first_transaction: u32,
}

impl UmadPinger {
    /// Creates a pinger from `port` to the address `to`. `target` is the address in ibping's
    /// notation. `lid` is the LID of the target on InfiniBand.
    pub(super) fn new(
        port: &Port,
        to: Address,
        target: String,
        oui: Oui,
        timeout: Duration,
        lid: Option<Lid>,
    ) -> Result<Self> {
        let agent = port.register(agent_options(oui, Methods::NONE))?;
        let first_transaction = agent.next_transaction_id();
        Ok(Self {
            agent,
            oui,
            to,
            target,
            timeout,
            lid,
            first_transaction,
        })
    }

    fn event(&self, received: &Received) -> PingEvent {
        let seq = received
            .mad
            .low_transaction_id()
            .wrapping_sub(self.first_transaction);
        if let Some(errno) = received.failure {
            return PingEvent::Failed {
                seq,
                reason: match errno.0 {
                    nix::libc::ETIMEDOUT => NO_REPLY.to_owned(),
                    _ => errno.to_string(),
                },
            };
        }
        if received.mad.method() != Method::GET_RESP {
            return PingEvent::Nothing;
        }
        match VendorMad::from_mad(&received.mad).filter(|vendor| vendor.oui() == self.oui) {
            Some(_) if !received.mad.status().is_ok() => PingEvent::Failed {
                seq,
                // The kernel of the peer replies so if no program serves the class.
                reason: format!(
                    "{} is reachable, but no `ribping -S` answers there ({})",
                    self.target,
                    received.mad.status()
                ),
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
        ping.set_low_transaction_id(self.first_transaction.wrapping_add(seq));
        self.agent
            .send(&ping, &self.to, self.timeout)
            .map_err(Error::from)
    }

    fn wait(&mut self, timeout: Duration) -> Result<PingEvent> {
        let received = self.agent.recv(Some(timeout))?;
        Ok(received.map_or(PingEvent::Nothing, |received| self.event(&received)))
    }

    fn local_fault(&mut self) -> Option<String> {
        let found = self.agent.port().attr().ok()?;
        let is_usable = found.state == PortState::ACTIVE || !found.link_layer.is_infiniband();
        let cause = match found.state {
            PortState::INIT => ": no subnet manager has configured it (start opensm on one host)",
            _ => "",
        };
        (!is_usable).then(|| {
            format!(
                "port {} of {} is {}{cause}",
                found.port_num, found.ca_name, found.state
            )
        })
    }

    /// Queries the node. Its management agent answers without a server.
    fn explain_silence(&mut self) -> Option<String> {
        let lid = self.lid?;
        let port = self.agent.port();
        let smi = Port::open(port.ca_name(), port.port_num())
            .ok()?
            .subnet_management()
            .ok()?;
        let smi = smi.with_retry(RetryPolicy::new().timeout(self.timeout).tries(2));
        let name = smi.node_description(&Target::Lid(lid)).ok()?;
        Some(format!(
            "Lid {lid} ({}) is reachable, but no `ribping -S` answers there",
            name.text()
        ))
    }
}

/// Answers pings on a port.
#[derive(Debug)]
pub(super) struct UmadServer {
    agent: Agent,
    name: Vec<u8>,
}

impl UmadServer {
    /// Creates a server on a port of a channel adapter.
    pub(super) fn new(ca: &str, port_num: u8, oui: Oui) -> Result<Self> {
        let port = Port::open(ca, port_num)?;
        Ok(Self {
            agent: port.register(agent_options(oui, Methods::ALL))?,
            name: host_name::nul_terminated(),
        })
    }

    /// Answers pings until `stop` is set.
    pub(super) fn run(&self, stop: &StopFlag, verbosity: u8) -> Result<()> {
        while !stop.is_set() {
            let Some(received) = self.agent.recv(Some(POLL_INTERVAL))? else {
                continue;
            };
            // The server sends no requests, so it ignores failed sends and responses.
            if received.failure.is_some() || received.mad.method().is_response() {
                continue;
            }
            let Some(ping) = VendorMad::from_mad(&received.mad) else {
                continue;
            };
            if verbosity > 0 {
                log(format_args!(
                    "ribping: ping from {} on {} port {}",
                    received.from,
                    self.agent.port().ca_name(),
                    self.agent.port().port_num()
                ));
            }
            // One unreachable client must not end the server.
            if let Err(error) = self
                .agent
                .send_without_response(&ping.response(&self.name), &received.from.reply())
            {
                log(format_args!("ribping: answer {}: {error}", received.from));
            }
        }
        Ok(())
    }
}
