//! The coordinator's end of a test that a server runs as the client of another server.

use std::time::{Duration, Instant};

use base::error::{Error, Kind, Result};

use super::delegate::clock;
use super::message::{ClientRequest, ClientResult, Message};
use crate::connect::{self, ServerAddr};
use crate::protocol::control_stream::ControlStream;

/// Time without a heartbeat after which a server is considered dead.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(5);
/// Number of times that the clock of a server is read. The reading with the shortest round trip
/// counts.
const CLOCK_READINGS: u32 = 8;

/// Difference between the clock of a server and that of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockOffset {
    /// The server's clock minus the clock of this process, in nanoseconds.
    pub nanos: i64,
    /// Largest error of the difference, in nanoseconds.
    pub error: u64,
}

impl ClockOffset {
    /// Converts a time of this process's clock.
    pub fn to_server(self, nanos: u64) -> u64 {
        nanos.saturating_add_signed(self.nanos)
    }

    /// Converts a time of the server's clock.
    pub fn from_server(self, nanos: u64) -> u64 {
        nanos.saturating_add_signed(self.nanos.saturating_neg())
    }
}

/// A test that a server runs as a client.
#[derive(Debug)]
pub struct RemoteTest {
    stream: ControlStream,
    /// Name of the client for messages. Its own messages call the other server "the server".
    client: String,
    /// Time limit for the whole test.
    deadline: Instant,
}

/// Converts a time of a clock that began less than 292 years ago.
fn signed(nanos: u64) -> i64 {
    i64::try_from(nanos).unwrap_or(i64::MAX)
}

/// Returns the time of this process's clock in nanoseconds.
pub fn now() -> u64 {
    clock()
}

impl RemoteTest {
    /// Requests a test from the server at `client_addr`, called `client` in messages. The server
    /// must reply within `timeout` while the connection is made, and the test end within `limit`.
    ///
    /// # Errors
    /// Returns an error if the server cannot be reached or is not an rperf server.
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
    ///
    /// # Errors
    /// Returns an error if the test failed or the server does not respond.
    pub fn wait_until_connected(&mut self) -> Result<()> {
        match self.receive()? {
            Message::Connected => Ok(()),
            other => Err(other.unexpected(&self.client)),
        }
    }

    /// Compares the clock of the server with that of this process.
    ///
    /// # Errors
    /// Returns an error if the test failed or the server does not respond.
    pub fn clock_offset(&mut self) -> Result<ClockOffset> {
        let mut best: Option<ClockOffset> = None;
        for _ in 0..CLOCK_READINGS {
            let before = clock();
            self.stream.send(&Message::AskClock)?;
            let server = match self.receive()? {
                Message::Clock { nanos } => nanos,
                other => return Err(other.unexpected(&self.client)),
            };
            let half = (clock() - before) / 2;
            let reading = ClockOffset {
                nanos: signed(server).wrapping_sub(signed(before + half)),
                error: half + 1,
            };
            if best.is_none_or(|best| reading.error < best.error) {
                best = Some(reading);
            }
        }
        best.ok_or_else(|| Error::test("no reading of the server's clock"))
    }

    /// Starts the test at a time of the server's clock.
    ///
    /// # Errors
    /// Returns an error if the connection broke.
    pub fn start(&mut self, at: u64) -> Result<()> {
        self.stream.send(&Message::Start { at })
    }

    /// Waits for the result.
    ///
    /// # Errors
    /// Returns an error if the test failed or the server does not respond.
    pub fn result(mut self) -> Result<ClientResult> {
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
