//! The messages on the control connection.

use std::time::Duration;

use base::error::{Error, Kind, Result};
use host::host_conf::HostConf;
use host::peer::PeerFacts;
use measure::engine::ExposedMemory;
use measure::result::Warning;
use measure::sockets::endpoint::ListenInfo;
use measure::spec::Spec;
use measure::spec::connection::ConnectionInfo;
use measure::stats::SideStats;
use measure::transport::{ClientEndpoints, ClientInfo, Offer};
use serde::{Deserialize, Serialize};

use crate::diagnosis::EncodedRecord;
use crate::probe::ReflectorInfo;

/// A message from either end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Message {
    /// From the client: requests a test.
    Request {
        /// The whole specification.
        spec: Box<Spec>,
        /// Device of the client, for tests over RDMA.
        client_info: Option<ClientInfo>,
    },
    /// From the server: agreed parameters and the server's endpoint.
    Offer(Offer),
    /// From the client: its endpoints.
    Answer(ClientEndpoints),
    /// From the server in tests over sockets: the port of its data socket.
    Listening(ListenInfo),
    /// From the client in tests over sockets: the port of its data socket.
    Bound {
        /// Local port of the client.
        port: u16,
        /// Local ports of further streams.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        more_ports: Vec<u16>,
    },
    /// From either end: the sender is connected and has posted its receives.
    Ready {
        /// Connection of the sender.
        via: ConnectionInfo,
        /// Memory of each thread of the sender that the peer will read or write.
        memory: Vec<Option<ExposedMemory>>,
        /// The sender's host.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        host: Option<HostConf>,
        /// Conditions on the sender's host that affect the results.
        #[serde(default)]
        warnings: Vec<Warning>,
    },
    /// From either end: a thread will send no more data messages.
    Finished {
        /// Number of data messages sent by the thread.
        sent: u64,
        /// Number of the thread.
        thread: u32,
    },
    /// From either end: the sender is working, although no data shows it.
    Heartbeat,
    /// From the client: both ends end the test early and report what they have measured.
    Stop,
    /// From either end: its statistics.
    Stats(Box<SideStats>),
    /// From the server: description of its host.
    Conf(HostConf),
    /// From `ribinfo check --peer`: requests the facts of the server's host.
    AskFacts,
    /// From the server: facts of its host.
    Facts(Box<PeerFacts>),
    /// From `rperf monitor`: requests the reflectors of the server.
    AskReflectors,
    /// From the server: its reflectors.
    Reflectors(Vec<ReflectorInfo>),
    /// From a coordinator: requests that the server run a test as the client of another server.
    RunClient(Box<ClientRequest>),
    /// From the server that runs a test as a client: it is connected and waits for `Start`.
    Connected,
    /// From a coordinator: the start of the test.
    Start,
    /// From the server that ran a test as a client: the record of the test, see
    /// [`Diagnosis::record`](crate::diagnosis::Diagnosis::record).
    ClientResult(EncodedRecord),
    /// From the server: it stops.
    Quitting,
    /// From either end: it failed, and the session ends.
    Error {
        /// Description of the error.
        text: String,
        /// Remedy, if one is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        help: Option<String>,
    },
}

/// A test that a coordinator requests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClientRequest {
    /// Specification of the test. The receiver of the request is its client.
    pub spec: Spec,
    /// Host of the server of the test.
    pub host: String,
    /// TCP port of the server of the test.
    pub port: u16,
    /// Time to retry the connection to the server of the test.
    pub wait: Duration,
    /// Wait for [`Message::Start`] before the test starts.
    pub common_start: bool,
}

/// Turn of [`Message::Ready`].
pub(super) const READY_TURN: u8 = 1;
/// Number of turns in a session.
pub(super) const TURNS: u8 = 3;

impl Message {
    /// Returns the position of the message among the messages that its sender sends in a session
    /// after the request, from 0; `None` if the message has no fixed position or is not part of a
    /// test.
    pub(super) fn turn(&self) -> Option<u8> {
        match self {
            Self::Offer(_) | Self::Answer(_) | Self::Listening(_) | Self::Bound { .. } => Some(0),
            Self::Ready { .. } => Some(READY_TURN),
            Self::Stats(_) => Some(READY_TURN + 1),
            _ => None,
        }
    }

    /// Creates the message of an error of this end.
    pub fn error(error: &Error) -> Self {
        Self::Error {
            text: error.text().to_owned(),
            help: error.help().map(str::to_owned),
        }
    }

    /// Returns the message, unless it is [`Message::Error`].
    ///
    /// # Errors
    /// Returns the error of the peer, prefixed with `peer_name`.
    pub fn or_error(self, peer_name: &str) -> Result<Self> {
        match self {
            // The error of serde in a peer that lacks a test or an operation, with a list of those
            // that it has.
            Message::Error { text, .. } if text.contains("unknown variant") => {
                let end = text.find(", expected").unwrap_or(text.len());
                let error = Error::new(Kind::Peer, format!("{peer_name}: {}", &text[..end]));
                Err(error.with_help(
                    "the rperf there is older and lacks it: install the same version on both hosts",
                ))
            }
            Message::Error { text, help } => {
                let error = Error::new(Kind::Peer, format!("{peer_name}: {text}"));
                Err(match help {
                    Some(help) => error.with_help(help),
                    None => error,
                })
            }
            other => Ok(other),
        }
    }

    /// Returns the error for a message that is not valid at this point of the protocol.
    pub fn unexpected(&self, peer_name: &str) -> Error {
        // The first string of the JSON text is the name of the variant.
        let text = serde_json::to_string(self).unwrap_or_default();
        let name = text.split('"').nth(1).unwrap_or_default();
        Error::protocol(format!("{peer_name} sent an unexpected message: {name}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_without_a_test_is_named_as_older() {
        let new = serde_json::to_string(&Message::Heartbeat).unwrap();
        let unknown = new.replace("heartbeat", "srd_bw");
        let text = serde_json::from_str::<Message>(&unknown).unwrap_err();
        let message = Message::Error {
            text: format!("cannot receive from the peer: invalid message: {text}"),
            help: None,
        };
        let error = message.or_error("the server").unwrap_err();
        let expected = "the server: cannot receive from the peer: invalid message: unknown variant `srd_bw`; help: the rperf there is older";
        assert!(error.to_string().starts_with(expected), "{error}");
    }

    #[test]
    fn records_are_parsed_by_the_coordinator_only() {
        // Parsed, each of these objects would take a hundred times its length.
        let text = format!("[{}0]", "{\"\":0},".repeat(9000));
        let text = format!("{{\"client_result\":{text}}}");
        let Message::ClientResult(result) = serde_json::from_str(&text).unwrap() else {
            panic!("another message");
        };
        assert!(text.contains(result.0.get()));
    }
}
