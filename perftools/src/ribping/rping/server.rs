//! Who answers: reads what the pinger offers and writes it back.

use std::thread;
use std::time::Duration;

use ibverbs::{
    AccessFlags, Held, Rc, RemoteMemory, SharedRegion,
    wr::{self, Operation},
};
use rdmacm::{ConnectParams, ConnectRequest, Connection, Listener};

use super::MAX_SIZE;
use super::endpoint::{Completed, RpingEndpoint};
use super::message::{MESSAGE_LEN, decode};
use crate::common::error::{Error, Kind, Result, log};
use crate::ribping::args::PingArgs;
use crate::ribping::stop::{POLL_INTERVAL, StopFlag};

/// For a pinger's last handshake message.
const PATIENCE: Duration = Duration::from_secs(10);

/// Pingers at once.
const MOST: usize = 256;

/// Takes pingers until it shall stop, each on a thread of its own.
///
/// # Errors
/// The listener is broken.
pub fn run(listener: &Listener, args: &PingArgs, stop: &StopFlag) -> Result<()> {
    thread::scope(|scope| {
        let mut workers: Vec<thread::ScopedJoinHandle<'_, ()>> = Vec::new();
        while !stop.is_set() {
            workers.retain(|worker| !worker.is_finished());
            let Some(request) = listener.accept(Some(POLL_INTERVAL))? else {
                continue;
            };
            let is_wanted = args
                .ca
                .as_deref()
                .is_none_or(|ca| ca == request.device_name())
                && args.port.is_none_or(|port| port == request.port_num());
            if !is_wanted || workers.len() >= MOST {
                // Dropped unclaimed, it is rejected.
                continue;
            }
            workers.push(scope.spawn(move || attend(request, args.level(), stop)));
        }
        Ok(())
    })
}

fn attend(request: ConnectRequest, level: u8, stop: &StopFlag) {
    let peer = request.peer_addr();
    let place = format!("{} port {}", request.device_name(), request.port_num());
    if level > 0 {
        log(format_args!("ribping: connection from {peer} at {place}"));
    }
    match serve(request, stop) {
        Err(error) if error.kind() != Kind::Gone || level > 0 => {
            log(format_args!("ribping: {peer}: {error}"));
        }
        _ => {}
    }
}

/// A pinger's connection, and the memory that what was read lies in until it is written.
struct Pinged<'a> {
    connection: Connection,
    end: RpingEndpoint,
    place: Held<SharedRegion>,
    /// Requests that the queue pair takes when nothing is on its way.
    room: usize,
    stop: &'a StopFlag,
}

fn serve(request: ConnectRequest, stop: &StopFlag) -> Result<()> {
    let end = RpingEndpoint::new(&request.context()?)?;
    // On iWARP the sink of a read must be open to writes of the peer.
    let memory = end
        .pd
        .shared(MAX_SIZE as usize, AccessFlags::REMOTE_WRITE)?;
    let mut qp = end.queue_pair()?;
    let place = qp.hold(&memory)?;
    let room = qp.send_slots_free();
    let access = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE;
    let mut pending = request.access(access).with_qp(qp)?;
    end.receive(pending.qp_mut())?;
    let params = ConnectParams {
        responder_resources: 1,
        initiator_depth: 1,
        ..ConnectParams::default()
    };
    let connection = pending.accept(&params, PATIENCE)?;
    Pinged {
        connection,
        end,
        place,
        room,
        stop,
    }
    .answer()
}

impl Pinged<'_> {
    /// Answers until the pinger goes or it shall stop.
    fn answer(mut self) -> Result<()> {
        while let Some((source, len)) = self.offer()? {
            let piece = self.piece(len)?;
            self.post(wr::read(piece, source))?;
            self.tell()?;
            let Some((sink, room)) = self.offer()? else {
                break;
            };
            let piece = self.piece(len.min(room))?;
            self.post(wr::write(piece, sink))?;
            self.tell()?;
        }
        Ok(())
    }

    /// Waits for the pinger's next offer; `None` when it shall stop.
    fn offer(&mut self) -> Result<Option<(RemoteMemory, usize)>> {
        while !self.stop.is_set() {
            let Some(Completed::Message(message)) =
                self.end.next(&mut self.connection, POLL_INTERVAL)?
            else {
                continue;
            };
            let memory = decode(&message)
                .ok_or_else(|| Error::protocol(format!("a message of {} bytes", message.len())))?;
            if memory.len == 0 || memory.len > MAX_SIZE.into() {
                return Err(Error::protocol(format!(
                    "{} bytes offered: 1 to {MAX_SIZE}",
                    memory.len
                )));
            }
            return Ok(Some((memory, usize::try_from(memory.len).unwrap_or(0))));
        }
        Ok(None)
    }

    fn piece(&self, len: usize) -> Result<Held<SharedRegion>> {
        self.place
            .slice(0..len)
            .ok_or_else(|| Error::protocol("more than there is room for"))
    }

    /// Posts a request and waits until it is done.
    fn post<O: Operation<Rc, Held<SharedRegion>>>(
        &mut self,
        request: wr::SendRequest<O, Held<SharedRegion>>,
    ) -> Result<()> {
        self.connection.qp_mut().post_send(request)?;
        while self.connection.qp().send_slots_free() < self.room && !self.stop.is_set() {
            if let Some(Completed::Message(_)) =
                self.end.next(&mut self.connection, POLL_INTERVAL)?
            {
                return Err(Error::protocol("the peer sends out of turn"));
            }
        }
        Ok(())
    }

    /// Tells the pinger to go on. What the message says has no meaning.
    fn tell(&mut self) -> Result<()> {
        self.end.send(self.connection.qp_mut(), [0; MESSAGE_LEN])
    }
}
