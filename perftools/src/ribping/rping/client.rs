//! The pinger.

use std::net::SocketAddr;
use std::time::Duration;

use ibverbs::{AccessFlags, SharedRegion};
use rdmacm::{ConnectParams, Connection, Resolver};

use super::MAX_SIZE;
use super::endpoint::{Completed, RpingEndpoint};
use super::message::{encode, text};
use crate::common::error::{Error, Kind, Result};
use crate::ribping::args::PingArgs;
use crate::ribping::transport::{PingEvent, PingTransport};

/// rping's size of a ping.
const DEFAULT_SIZE: u32 = 64;

/// Where a ping is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// No ping is on its way.
    Idle,
    /// The source was offered; the server reads it.
    Read(u32),
    /// The sink was offered; the server writes it.
    Written(u32),
}

/// Pings over a connection.
pub struct RpingClient {
    // The connection goes first: the regions are open to the peer until its queue pair is gone.
    connection: Connection,
    end: RpingEndpoint,
    source: SharedRegion,
    sink: SharedRegion,
    stage: Stage,
    sent: Vec<u8>,
    target: String,
    from: String,
}

impl RpingClient {
    /// Connects to this address, which is called `called`.
    ///
    /// # Errors
    /// There is no way there, or nobody who answers.
    pub fn connect(to: SocketAddr, called: &str, args: &PingArgs) -> Result<Self> {
        let size = args.size.unwrap_or(DEFAULT_SIZE);
        if !(16..=MAX_SIZE).contains(&size) {
            return Err(Error::usage(format!(
                "--size {size}: 16 to {MAX_SIZE} bytes"
            )));
        }
        // A handshake takes longer than a ping.
        let patience = args.patience().max(Duration::from_secs(3));
        let route = Resolver::new(to).timeout(patience).resolve()?;
        let is_wanted = args
            .ca
            .as_deref()
            .is_none_or(|ca| ca == route.device_name())
            && args.port.is_none_or(|port| port == route.port_num());
        if !is_wanted {
            let place = format!("{} port {}", route.device_name(), route.port_num());
            return Err(Error::usage(format!(
                "the way to {called} leads through {place}, not where -C and -P say"
            )));
        }
        let route = route.access(
            AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_READ | AccessFlags::REMOTE_WRITE,
        );
        let end = RpingEndpoint::new(&route.context()?)?;
        let len = usize::try_from(size).unwrap_or(usize::MAX);
        let source = end.pd.shared(len, AccessFlags::REMOTE_READ)?;
        let sink = end.pd.shared(len, AccessFlags::REMOTE_WRITE)?;
        let mut ready = route.with_qp(end.queue_pair()?)?;
        end.receive(ready.qp_mut())?;
        let params = ConnectParams {
            responder_resources: 1,
            initiator_depth: 1,
            ..ConnectParams::default()
        };
        let connection = ready.connect(&params, patience).map_err(|error| {
            Error::new(
                Kind::System,
                format!("{called}: {error}; is `ribping -S` or `rping -s` running there?"),
            )
        })?;
        let target = match to {
            SocketAddr::V4(v4) => format!("Host {}", v4.ip()),
            SocketAddr::V6(v6) => format!("Host {}", v6.ip()),
        };
        Ok(Self {
            connection,
            end,
            source,
            sink,
            stage: Stage::Idle,
            sent: Vec::new(),
            target,
            from: called.to_owned(),
        })
    }

    /// The server has done a step.
    fn message(&mut self) -> Result<PingEvent> {
        match self.stage {
            Stage::Idle => Err(Error::protocol("the peer sends out of turn")),
            Stage::Read(seq) => {
                self.stage = Stage::Written(seq);
                self.end
                    .send(self.connection.qp_mut(), encode(self.sink.remote()))?;
                Ok(PingEvent::Nothing)
            }
            Stage::Written(seq) => {
                self.stage = Stage::Idle;
                let mut back = vec![0; self.sent.len()];
                self.sink.read(0, &mut back)?;
                if back == self.sent {
                    return Ok(PingEvent::Pong {
                        seq,
                        from: self.from.clone(),
                    });
                }
                Ok(PingEvent::Failed {
                    seq,
                    why: "what came back is not what was sent".to_owned(),
                })
            }
        }
    }
}

impl std::fmt::Debug for RpingClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pinger")
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
        // A connection loses nothing: who does not answer in time is stuck, and takes no other ping
        // before it has answered this one.
        if self.stage != Stage::Idle {
            return Ok(());
        }
        self.sent = text(seq, self.source.len());
        self.source.write(0, &self.sent)?;
        self.sink.write(0, &vec![0; self.sink.len()])?;
        self.stage = Stage::Read(seq);
        self.end
            .send(self.connection.qp_mut(), encode(self.source.remote()))
    }

    fn wait(&mut self, time: Duration) -> Result<PingEvent> {
        match self.end.next(&mut self.connection, time)? {
            Some(Completed::Message(_)) => self.message(),
            Some(Completed::Own) | None => Ok(PingEvent::Nothing),
        }
    }
}
