//! Data connections over TCP that arrive at the port of the control connections, so that a firewall
//! opens one port only.
//!
//! A session waits for the streams that begin with its key, and the threads that serve new
//! connections hand them over. A stream with another key is closed without a reply.

use std::collections::HashMap;
use std::net::TcpStream;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use base::error::{Error, Kind, Result};
use base::units::show_time;
use measure::data_key::DataKey;
use measure::sockets::open;
use socket2::Socket;

/// Interval at which a wait checks that the client is still connected.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// The sessions of a server that wait for streams, by the client's number in their keys.
#[derive(Debug, Default)]
pub struct DataStreams(Mutex<HashMap<u64, SyncSender<TcpStream>>>);

impl DataStreams {
    fn sessions(&self) -> MutexGuard<'_, HashMap<u64, SyncSender<TcpStream>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the streams that will begin with this key.
    pub(super) fn expect(&self, key: DataKey) -> Expected<'_> {
        // A client opens a stream after the previous one was accepted.
        let (sender, streams) = sync_channel(1);
        self.sessions().insert(key.client, sender);
        Expected {
            of: self,
            key,
            streams,
        }
    }

    /// Gives a stream to the session with this number.
    ///
    /// # Errors
    /// Returns an error if no session waits for it. It is then closed.
    pub(super) fn deliver(&self, number: u64, stream: TcpStream) -> Result<()> {
        let session = self.sessions().get(&number).cloned();
        let delivered = session.is_some_and(|session| session.try_send(stream).is_ok());
        if delivered {
            return Ok(());
        }
        Err(Error::protocol(
            "no test waits for the data connection; no reply was sent",
        ))
    }
}

/// The streams of a session. Streams that arrive after it is dropped are closed.
#[derive(Debug)]
pub(super) struct Expected<'a> {
    of: &'a DataStreams,
    key: DataKey,
    streams: Receiver<TcpStream>,
}

impl Expected<'_> {
    /// Waits for the next stream, and sends the server's number to the client.
    pub(super) fn accept(
        &self,
        buffers: u32,
        timeout: Duration,
        gone: &dyn Fn() -> bool,
    ) -> Result<Socket> {
        let begin = Instant::now();
        loop {
            match self.streams.recv_timeout(CHECK_INTERVAL) {
                Ok(stream) => return open::accepted(stream, buffers, self.key),
                Err(RecvTimeoutError::Timeout) => {}
                // Not possible while `self.of` has the sender.
                Err(RecvTimeoutError::Disconnected) => std::thread::sleep(CHECK_INTERVAL),
            }
            if gone() {
                return Err(Error::new(
                    Kind::Gone,
                    "the client closed the control connection before it opened the data connection",
                ));
            }
            if begin.elapsed() >= timeout {
                return Err(Error::new(
                    Kind::System,
                    format!(
                        "the client did not open its data connection within {}",
                        show_time(timeout)
                    ),
                )
                .with_help("check the path for lost packets, or set --timeout (-to) higher"));
            }
        }
    }
}

impl Drop for Expected<'_> {
    fn drop(&mut self) {
        self.of.sessions().remove(&self.key.client);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::TcpListener;

    /// Returns both ends of a connection.
    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (client, listener.accept().unwrap().0)
    }

    fn is_closed(mut client: &TcpStream) -> bool {
        matches!(client.read(&mut [0]), Ok(0))
    }

    #[test]
    fn a_session_gets_the_streams_with_its_key_only() {
        let streams = DataStreams::default();
        let key = DataKey::random();
        let ((mut ours, server), (theirs, other)) = (pair(), pair());
        let expected = streams.expect(key);
        let error = streams.deliver(key.client ^ 1, other).unwrap_err();
        assert!(error.to_string().contains("no reply was sent"), "{error}");
        assert!(is_closed(&theirs));
        streams.deliver(key.client, server).unwrap();
        let accepted = expected.accept(0, Duration::ZERO, &|| false);
        assert!(accepted.is_ok());
        let mut reply = [0; 8];
        ours.read_exact(&mut reply).unwrap();
        key.check_server(&reply).unwrap();
    }

    #[test]
    fn more_streams_than_a_session_takes_are_closed() {
        let streams = DataStreams::default();
        let key = DataKey::random();
        let (_first, server) = pair();
        let expected = streams.expect(key);
        streams.deliver(key.client, server).unwrap();
        let (second, server) = pair();
        streams.deliver(key.client, server).unwrap_err();
        assert!(is_closed(&second));
        drop(expected);
        let (late, server) = pair();
        streams.deliver(key.client, server).unwrap_err();
        assert!(is_closed(&late));
    }
}
