//! The rping server. For each ping it reads the memory that the client exposes and writes the bytes
//! back.

use std::thread;
use std::time::Duration;

use ibverbs::{
    AccessFlags, Held, Rc, RemoteMemory, SharedRegion,
    wr::{self, Operation},
};
use rdmacm::{ConnectParams, ConnectRequest, Connection, Listener};

use super::MAX_SIZE;
use super::endpoint::{CompletionKind, RpingEndpoint};
use super::message::{MESSAGE_LEN, decode};
use crate::common::error::{Error, Kind, Result};
use crate::common::log::log;
use crate::ribping::args::PingArgs;
use crate::ribping::stop::{POLL_INTERVAL, StopFlag};

/// Timeout of the connection handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum number of concurrent clients.
const MAX_CLIENTS: usize = 256;

/// Serves each client on a thread of its own until `stop` is set.
///
/// # Errors
/// Returns an error if the listener fails.
pub fn run(listener: &Listener, args: &PingArgs, stop: &StopFlag) -> Result<()> {
    thread::scope(|scope| {
        let mut workers: Vec<thread::ScopedJoinHandle<'_, ()>> = Vec::new();
        while !stop.is_set() {
            workers.retain(|worker| !worker.is_finished());
            let Some(request) = listener.accept(Some(POLL_INTERVAL))? else {
                continue;
            };
            let is_on_selected_port = args
                .ca
                .as_deref()
                .is_none_or(|ca| ca == request.device_name())
                && args.port.is_none_or(|port| port == request.port_num());
            if !is_on_selected_port || workers.len() >= MAX_CLIENTS {
                // Dropping the request rejects it.
                continue;
            }
            workers.push(scope.spawn(move || handle_client(request, args.verbosity(), stop)));
        }
        Ok(())
    })
}

fn handle_client(request: ConnectRequest, verbosity: u8, stop: &StopFlag) {
    let peer = request.peer_addr();
    let port = format!("{} port {}", request.device_name(), request.port_num());
    if verbosity > 0 {
        log(format_args!("ribping: connection from {peer} on {port}"));
    }
    match serve(request, stop) {
        Err(error) if error.kind() != Kind::Gone || verbosity > 0 => {
            log(format_args!("ribping: {peer}: {error}"));
        }
        _ => {}
    }
}

/// The connection to a client, and the buffer for the data of its pings.
struct Session<'a> {
    connection: Connection,
    endpoint: RpingEndpoint,
    buffer: Held<SharedRegion>,
    /// Number of free send slots when no request is in flight.
    send_slots: usize,
    stop: &'a StopFlag,
}

fn serve(request: ConnectRequest, stop: &StopFlag) -> Result<()> {
    let endpoint = RpingEndpoint::new(&request.context()?)?;
    // On iWARP the sink of an RDMA READ needs remote write access.
    let memory = endpoint
        .pd
        .shared(MAX_SIZE as usize, AccessFlags::REMOTE_WRITE)?;
    let mut qp = endpoint.create_qp()?;
    let buffer = qp.hold(&memory)?;
    let send_slots = qp.send_slots_free();
    let access = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE;
    let mut pending = request.access(access).with_qp(qp)?;
    endpoint.post_recv(pending.qp_mut())?;
    let params = ConnectParams::new()
        .responder_resources(1)
        .initiator_depth(1);
    let connection = pending.accept(&params, HANDSHAKE_TIMEOUT)?;
    Session {
        connection,
        endpoint,
        buffer,
        send_slots,
        stop,
    }
    .run()
}

impl Session<'_> {
    /// Answers pings until `stop` is set or the client disconnects.
    fn run(mut self) -> Result<()> {
        while let Some((source, len)) = self.next_exposed()? {
            let slice = self.buffer_slice(len)?;
            self.post_and_wait(wr::read(slice, source))?;
            self.acknowledge()?;
            let Some((sink, sink_len)) = self.next_exposed()? else {
                break;
            };
            let slice = self.buffer_slice(len.min(sink_len))?;
            self.post_and_wait(wr::write(slice, sink))?;
            self.acknowledge()?;
        }
        Ok(())
    }

    /// Waits until the client exposes memory. Returns the memory and its length, or `None` if
    /// `stop` is set.
    fn next_exposed(&mut self) -> Result<Option<(RemoteMemory, usize)>> {
        while !self.stop.is_set() {
            let Some(CompletionKind::Received(message)) = self
                .endpoint
                .next_completion(&mut self.connection, POLL_INTERVAL)?
            else {
                continue;
            };
            let memory = decode(&message).ok_or_else(|| {
                Error::protocol(format!(
                    "receive from the client: a message of {} bytes, expected {MESSAGE_LEN}",
                    message.len()
                ))
            })?;
            if memory.len == 0 || memory.len > MAX_SIZE.into() {
                return Err(Error::protocol(format!(
                    "receive from the client: {} bytes of exposed memory, expected 1 to {MAX_SIZE}",
                    memory.len
                )));
            }
            return Ok(Some((memory, usize::try_from(memory.len).unwrap_or(0))));
        }
        Ok(None)
    }

    fn buffer_slice(&self, len: usize) -> Result<Held<SharedRegion>> {
        self.buffer
            .slice(0..len)
            .ok_or_else(|| Error::protocol("answer the client: the ping is larger than the buffer"))
    }

    /// Posts a request and waits until it completes or `stop` is set.
    fn post_and_wait<O: Operation<Rc, Held<SharedRegion>>>(
        &mut self,
        request: wr::SendRequest<O, Held<SharedRegion>>,
    ) -> Result<()> {
        self.connection.qp_mut().post_send(request)?;
        while self.connection.qp().send_slots_free() < self.send_slots && !self.stop.is_set() {
            if let Some(CompletionKind::Received(_)) = self
                .endpoint
                .next_completion(&mut self.connection, POLL_INTERVAL)?
            {
                return Err(Error::protocol(
                    "receive from the client: unexpected message",
                ));
            }
        }
        Ok(())
    }

    /// Sends the message that lets the client continue. The client ignores its content.
    fn acknowledge(&mut self) -> Result<()> {
        self.endpoint
            .send(self.connection.qp_mut(), [0; MESSAGE_LEN])
    }
}
