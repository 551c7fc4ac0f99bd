//! The client, which sends pings.

use std::net::SocketAddr;
use std::time::Duration;

use base::error::{Error, Kind, Result};
use ibverbs::{AccessFlags, ErrorKind, SharedRegion};
use rdmacm::{ConnectParams, Connection, Resolver};

use super::MAX_SIZE;
use super::endpoint::{CompletionKind, RpingEndpoint, post_rtr};
use super::message::{encode, text};
use crate::ribping::args::PingArgs;
use crate::ribping::transport::{PingEvent, PingTransport};

/// Default size of a ping in bytes, the same as that of rping.
const DEFAULT_SIZE: u32 = 64;

/// Progress of a ping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// No ping is in flight.
    Idle,
    /// The server reads the source of the ping with this sequence number.
    Read(u32),
    /// The server writes the sink of the ping with this sequence number.
    Written(u32),
}

/// Sends pings over a connection.
pub(crate) struct RpingClient {
    // Dropped first: the peer can access the regions until the queue pair is destroyed.
    connection: Connection,
    endpoint: RpingEndpoint,
    source: SharedRegion,
    sink: SharedRegion,
    stage: Stage,
    /// `true` once the server has sent a message.
    has_answer: bool,
    sent: Vec<u8>,
    target: String,
    from: String,
}

impl RpingClient {
    /// Connects to an address. `name` is how the replies name the peer.
    ///
    /// # Errors
    /// - [`Kind::Usage`] if `--size` is out of range or -C and -P select another port than the
    ///   route.
    /// - [`Kind::Gone`] if the server cannot be connected.
    /// - [`Kind::Device`] if a resource cannot be created.
    pub(crate) fn connect(to: SocketAddr, name: &str, args: &PingArgs) -> Result<Self> {
        let size = args.size.unwrap_or(DEFAULT_SIZE);
        if !(16..=MAX_SIZE).contains(&size) {
            return Err(Error::usage(format!(
                "--size {size}: expected 16 to {MAX_SIZE} bytes"
            )));
        }
        // A handshake takes longer than a ping.
        let timeout = args.reply_timeout().max(Duration::from_secs(3));
        let route = Resolver::new(to).timeout(timeout).resolve()?;
        let is_selected = args
            .ca
            .as_deref()
            .is_none_or(|ca| ca == route.device_name())
            && args.port.is_none_or(|port| port == route.port_num());
        if !is_selected {
            return Err(Error::usage(format!(
                "cannot connect to {name}: the route uses {} port {}, which -C and -P exclude",
                route.device_name(),
                route.port_num()
            )));
        }
        let route = route.access(
            AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_READ | AccessFlags::REMOTE_WRITE,
        );
        let endpoint = RpingEndpoint::new(&route.context()?)?;
        let len = usize::try_from(size).unwrap_or(usize::MAX);
        let source = endpoint.pd.shared(len, AccessFlags::REMOTE_READ)?;
        let sink = endpoint.pd.shared(len, AccessFlags::REMOTE_WRITE)?;
        let mut ready = route.with_qp(endpoint.create_qp()?)?;
        endpoint.post_recv(ready.qp_mut())?;
        let params = ConnectParams::new()
            .responder_resources(1)
            .initiator_depth(1);
        let connection = ready.connect(&params, timeout).map_err(|error| {
            let has_no_listener = error
                .rejection()
                .is_some_and(|rejection| rejection.reason.has_no_listener());
            let text = if has_no_listener {
                format!(
                    "{name} is reachable, but no `ribping -S` answers there on port {}",
                    to.port()
                )
            } else {
                let text = error.to_string();
                let (cause, _) = text.split_once("; help: ").unwrap_or((&text, ""));
                format!("cannot connect to {name}: {cause}")
            };
            Error::new(Kind::Gone, text).with_help("start `ribping -S` or `rping -s` on that host")
        })?;
        let target = match to {
            SocketAddr::V4(v4) => format!("Host {}", v4.ip()),
            SocketAddr::V6(v6) => format!("Host {}", v6.ip()),
        };
        Ok(Self {
            connection,
            endpoint,
            source,
            sink,
            stage: Stage::Idle,
            has_answer: false,
            sent: Vec::new(),
            target,
            from: name.to_owned(),
        })
    }

    /// Handles a message of the server: it has read the source or written the sink.
    fn handle_message(&mut self) -> Result<PingEvent> {
        match self.stage {
            Stage::Idle => Err(Error::protocol(
                "cannot receive from the peer: unexpected message",
            )),
            Stage::Read(seq) => {
                self.stage = Stage::Written(seq);
                self.endpoint
                    .send(self.connection.qp_mut(), encode(self.sink.remote()))?;
                Ok(PingEvent::Nothing)
            }
            Stage::Written(seq) => {
                self.stage = Stage::Idle;
                let mut received = vec![0; self.sent.len()];
                self.sink.read(0, &mut received)?;
                if received == self.sent {
                    return Ok(PingEvent::Pong {
                        seq,
                        from: self.from.clone(),
                    });
                }
                Ok(PingEvent::Failed {
                    seq,
                    reason: "the returned data differs from the sent data".to_owned(),
                })
            }
        }
    }
}

impl std::fmt::Debug for RpingClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RpingClient")
            .field("target", &self.target)
            .field("stage", &self.stage)
            .finish_non_exhaustive()
    }
}

impl PingTransport for RpingClient {
    fn target(&self) -> String {
        self.target.clone()
    }

    fn name(&self) -> &'static str {
        "rdma_cm"
    }

    fn device(&self) -> String {
        self.connection.device_name().to_owned()
    }

    fn port(&self) -> u8 {
        self.connection.port_num()
    }

    fn send(&mut self, seq: u32) -> Result<()> {
        // A connection loses no messages, so a peer that did not reply is still busy with the last
        // ping. It cannot accept another one before it has replied.
        if self.stage != Stage::Idle {
            return Ok(());
        }
        self.sent = text(seq, self.source.len());
        self.source.write(0, &self.sent)?;
        self.sink.write(0, &vec![0; self.sink.len()])?;
        self.stage = Stage::Read(seq);
        self.endpoint
            .send(self.connection.qp_mut(), encode(self.source.remote()))
    }

    fn local_fault(&mut self) -> Option<String> {
        let fault = self.connection.check_device().err()?;
        // The consequence of a failed request, which has an error of its own.
        let is_consequence = fault.kind() == ErrorKind::WrongState;
        (!is_consequence).then(|| fault.detail().to_owned())
    }

    fn wait(&mut self, timeout: Duration) -> Result<PingEvent> {
        match self
            .endpoint
            .next_completion(&mut self.connection, timeout)?
        {
            Some(CompletionKind::Received(_)) => {
                self.has_answer = true;
                self.handle_message()
            }
            Some(CompletionKind::Request) => Ok(PingEvent::Nothing),
            None => {
                if !self.has_answer && self.stage != Stage::Idle {
                    post_rtr(&mut self.connection)?;
                }
                Ok(PingEvent::Nothing)
            }
        }
    }
}
