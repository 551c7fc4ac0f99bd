//! What the two ends say to each other.

use serde::{Deserialize, Serialize};

use crate::common::error::{Error, Kind, Result};
use crate::common::protocol::printable;
use crate::ribinfo::collect::peer::PeerFacts;
use crate::rperf::engine::ExposedMemory;
use crate::rperf::report::host_conf::HostConf;
use crate::rperf::report::warning::Warning;
use crate::rperf::sockets::endpoint::ListenInfo;
use crate::rperf::spec::Spec;
use crate::rperf::spec::connection::ConnectionInfo;
use crate::rperf::stats::SideStats;
use crate::rperf::transport::{ClientEndpoints, ClientInfo, Offer};

/// A message, from either end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Message {
    /// Server: prove that you have the token.
    Challenge {
        /// A number that is used once.
        nonce: String,
    },
    /// This end has the token.
    Proof {
        /// A number that is used once.
        nonce: String,
        /// The proof over both numbers.
        mac: String,
    },
    /// Client: run this.
    Request {
        /// The whole specification.
        spec: Box<Spec>,
        /// The client's end, for tests that move data.
        ask: Option<ClientInfo>,
    },
    /// Server: this is how.
    Offer(Offer),
    /// Client: this is my end.
    Answer(ClientEndpoints),
    /// Server, for tests over sockets: this is where it waits.
    Listening(ListenInfo),
    /// Client, for tests over sockets: this is its port there.
    Bound {
        /// The port.
        port: u16,
    },
    /// Connected, receives posted.
    Ready {
        /// The path of the end that speaks.
        via: ConnectionInfo,
        /// The memory of each of its threads that the peer will read or write.
        memory: Vec<Option<ExposedMemory>>,
        /// What of its host spoils figures.
        #[serde(default)]
        warnings: Vec<Warning>,
    },
    /// No more than `sent` data messages will come.
    Finished {
        /// How many were sent in all.
        sent: u64,
        /// By which thread.
        thread: u32,
    },
    /// The data does not show it, but this end is at work.
    AtWork,
    /// What this end counted.
    Stats(Box<SideStats>),
    /// Server: what this host is.
    Conf(HostConf),
    /// Client: what is this host, for `ribinfo check --peer`?
    AskFacts,
    /// Server: that.
    Facts(Box<PeerFacts>),
    /// Server: it ends.
    Quitting,
    /// It failed; the conversation ends.
    Error {
        /// Why, in a sentence.
        text: String,
    },
}

impl Message {
    /// The message as it is, or the peer's error.
    ///
    /// # Errors
    /// The peer's text, with `who` in front.
    pub fn or_error(self, who: &str) -> Result<Self> {
        match self {
            Message::Error { text } => Err(Error::new(
                Kind::Peer,
                format!("{who}: {}", printable(&text)),
            )),
            other => Ok(other),
        }
    }

    /// The error of a message that does not belong here.
    pub fn unexpected(&self, who: &str) -> Error {
        let name = serde_json::to_value(self).ok().and_then(|v| match v {
            serde_json::Value::Object(map) => map.keys().next().cloned(),
            serde_json::Value::String(name) => Some(name),
            _ => None,
        });
        Error::protocol(format!(
            "{who} sent a message out of turn: {}",
            name.unwrap_or_default()
        ))
    }
}
