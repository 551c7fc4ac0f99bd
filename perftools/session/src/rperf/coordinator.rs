//! The coordinator's end of a test that a server runs as the client of another server.

use std::time::{Duration, Instant};

use base::error::{Error, Kind, Result};

use super::message::{ClientRequest, Message};
use crate::connect::{self, ServerAddr};
use crate::diagnosis::EncodedRecord;
use crate::protocol::control_stream::ControlStream;

/// Time without a heartbeat after which a server is considered dead.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(5);

/// A test that a server runs as a client.
#[derive(Debug)]
pub struct RemoteTest {
    stream: ControlStream,
    /// Name of the client for messages. Its own messages call the other server "the server".
    client: String,
    /// Time limit for the whole test.
    deadline: Instant,
}

impl RemoteTest {
    /// Requests a test from the server at `client_addr`, called `client` in messages. The server
    /// must reply within `timeout` while the connection is made, and the test end within `limit`.
    pub fn request(
        client: &str,
        client_addr: &ServerAddr,
        timeout: Duration,
        request: ClientRequest,
        limit: Duration,
    ) -> Result<Self> {
        let mut stream = connect::open_rperf(client_addr, timeout.min(SILENCE_TIMEOUT))?;
        stream.send(&Message::RunClient(Box::new(request)))?;
        let deadline = Instant::now() + limit;
        Ok(Self {
            stream,
            client: client.to_owned(),
            deadline,
        })
    }

    /// Waits until the test is connected.
    pub fn wait_until_connected(&mut self) -> Result<()> {
        match self.receive()? {
            Message::Connected => Ok(()),
            other => Err(other.unexpected(&self.client)),
        }
    }

    /// Starts the test.
    pub fn start(&mut self) -> Result<()> {
        self.stream.send(&Message::Start)
    }

    /// Waits for the result.
    pub fn result(mut self) -> Result<EncodedRecord> {
        match self.receive()? {
            Message::ClientResult(result) => Ok(result),
            other => Err(other.unexpected(&self.client)),
        }
    }

    /// Returns the next message other than a heartbeat.
    fn receive(&mut self) -> Result<Message> {
        loop {
            let message = self
                .stream
                .receive::<Message>(SILENCE_TIMEOUT)
                .map_err(|error| match error.kind() {
                    Kind::Test => Error::test(format!(
                        "{} sent nothing for {} s",
                        self.client,
                        SILENCE_TIMEOUT.as_secs()
                    ))
                    .with_help("check that its host is up"),
                    Kind::Gone => Error::new(
                        Kind::Gone,
                        format!(
                            "{} closed the connection in the middle of the test",
                            self.client
                        ),
                    ),
                    _ => error,
                })?;
            match message.or_error(&self.client)? {
                Message::Heartbeat if Instant::now() < self.deadline => {}
                Message::Heartbeat => return Err(Error::test("the test did not end in time")),
                other => return Ok(other),
            }
        }
    }
}
