//! Messages: sending, receiving, retries and completions.

use super::caps::{GID, MAX_RDMA, MTU};
use super::counter::{Event, count};
use super::descriptor::{Buffer, Completion, Queue, Receive, Send, Status, operation};
use super::progress::{InFlight, Message};
use super::qp::Qp;
use super::{Ah, Efa};
use crate::abi::core::access;
use crate::network::packet::{self, Header, Packet, flag, status};
use crate::nic::Shared;
use crate::qp_state::RTS;

/// Requests that a queue pair may start in one step.
const BURST: usize = 16;
/// SRD requests of a queue pair that may wait for a response.
const WINDOW: usize = 256;
/// Time after which an SRD request without a response is sent again, in nanoseconds.
const TIMEOUT: u64 = 500_000_000;
/// Times that an SRD request is sent before the peer counts as unresponsive.
const ATTEMPTS: u8 = 4;
/// Wait for a receiver without a receive request, in nanoseconds.
const RNR_WAIT: u64 = 100_000;
/// Number of retries that means "forever".
const RNR_FOREVER: u8 = 7;
/// SRD messages that a receiver remembers, to recognize those that arrive twice.
const REMEMBERED: usize = 1024;
/// Room at the beginning of a UD receive request.
const GRH: usize = 40;

impl Efa {
    /// Starts posted requests of a queue pair, and sends those again whose answer is overdue.
    /// Returns `true` if there was work.
    pub(super) fn run(&mut self, cx: &mut Shared, number: u32) -> bool {
        let Some(mut qp) = self.qps.remove(number) else {
            return false;
        };
        let mut worked = false;
        if qp.state == RTS {
            worked = self.retry(cx, &mut qp);
            let mut batch = Vec::new();
            let room = WINDOW.saturating_sub(qp.in_flight.len()).min(BURST);
            while batch.len() < room {
                let Some(send) = qp.send.take::<Send>(qp.doorbells) else {
                    break;
                };
                batch.push(send);
            }
            worked |= !batch.is_empty();
            while !batch.is_empty() {
                // Messages of SRD overtake each other.
                let position = if qp.is_srd {
                    self.choose(batch.len())
                } else {
                    0
                };
                let send = batch.remove(position);
                self.start(cx, &mut qp, send);
            }
        }
        self.qps.put_back(number, qp);
        worked
    }

    fn start(&mut self, cx: &mut Shared, qp: &mut Qp, send: Send) {
        let sequence = qp.next;
        let packet = match self.request(cx, qp, &send, sequence) {
            Ok(packet) => packet,
            Err(status) => {
                self.complete_send(cx, qp, &send, status);
                return;
            }
        };
        let now = cx.clock.now();
        cx.network.send(packet, now);
        if qp.is_srd {
            qp.next = sequence.wrapping_add(1);
            qp.in_flight.push(InFlight {
                send,
                sequence,
                deadline: now + TIMEOUT,
                attempts: 1,
                rnr_retries: qp.rnr_retry,
            });
        } else {
            self.complete_send(cx, qp, &send, Status::Ok);
        }
    }

    /// Sends requests again whose time has come.
    fn retry(&mut self, cx: &mut Shared, qp: &mut Qp) -> bool {
        let now = cx.clock.now();
        let mut worked = false;
        let mut position = 0;
        while position < qp.in_flight.len() {
            let entry = &qp.in_flight[position];
            if now < entry.deadline {
                position += 1;
                continue;
            }
            worked = true;
            let (send, sequence, last) = (entry.send, entry.sequence, entry.attempts >= ATTEMPTS);
            let packet = if last {
                Err(Status::Unresponsive)
            } else {
                self.request(cx, qp, &send, sequence)
            };
            match packet {
                Ok(packet) => {
                    cx.network.send(packet, now);
                    let entry = &mut qp.in_flight[position];
                    entry.attempts += 1;
                    entry.deadline = now + TIMEOUT;
                    position += 1;
                }
                Err(status) => {
                    qp.in_flight.remove(position);
                    self.complete_send(cx, qp, &send, status);
                }
            }
        }
        worked
    }

    /// Makes the packet of a request.
    fn request(&self, cx: &Shared, qp: &Qp, send: &Send, sequence: u32) -> Result<Packet, Status> {
        send.check()?;
        let ah = *self
            .ahs
            .get(u32::from(send.ah))
            .filter(|ah| ah.pd == qp.pd)
            .ok_or(Status::InvalidAh)?;
        let mut header = Header {
            kind: packet::REQUEST,
            opcode: send.operation(),
            flags: if qp.is_srd { 0 } else { flag::DATAGRAM },
            source: qp.number,
            destination: u32::from(send.destination),
            psn: sequence,
            qkey: send.qkey,
            source_gid: GID,
            destination_gid: ah.gid,
            ..Header::default()
        };
        let payload = match (send.operation(), qp.is_srd) {
            (operation::SEND, _) => {
                if send.has_immediate() {
                    header.flags |= flag::IMMEDIATE;
                    header.immediate = send.immediate;
                }
                match send.inline_data() {
                    Some(data) => data.to_vec(),
                    None => gather(cx, qp.pd, &send.buffers().ok_or(Status::BadLength)?)?,
                }
            }
            (operation::RDMA_READ, true) => {
                let (remote, local) = send.read();
                if remote.length > MAX_RDMA || remote.length > local.length {
                    return Err(Status::BadLength);
                }
                writable(cx, qp.pd, &local)?;
                header.rkey = remote.remote_key();
                header.address = remote.address();
                header.length = remote.length;
                Vec::new()
            }
            _ => return Err(Status::InvalidOperation),
        };
        Ok(Packet { header, payload })
    }

    pub(super) fn complete_send(&mut self, cx: &mut Shared, qp: &Qp, send: &Send, status: Status) {
        let operation = send.operation();
        count(&qp.counters, Event::Sent { operation, status });
        let entry = Completion::new(Queue::Send, send.id, qp.number, status);
        self.complete(cx, qp.send_cq, Queue::Send, &entry);
    }

    /// Handles a response to an SRD request.
    pub(super) fn receive_response(&mut self, cx: &mut Shared, number: u32, packet: &Packet) {
        let Some(mut qp) = self.qps.remove(number) else {
            return;
        };
        self.finish(cx, &mut qp, packet);
        self.qps.put_back(number, qp);
    }

    fn finish(&mut self, cx: &mut Shared, qp: &mut Qp, packet: &Packet) {
        let header = &packet.header;
        let found = |entry: &InFlight| entry.sequence == header.psn;
        let Some(position) = qp.in_flight.iter().position(found) else {
            return;
        };
        let entry = &mut qp.in_flight[position];
        if header.status == status::RNR && entry.rnr_retries > 0 {
            if entry.rnr_retries != RNR_FOREVER {
                entry.rnr_retries -= 1;
            }
            entry.attempts = 0;
            entry.deadline = cx.clock.now() + RNR_WAIT;
            return;
        }
        let send = qp.in_flight.remove(position).send;
        let status = match header.status {
            status::ACK if send.operation() == operation::RDMA_READ => {
                let (_, local) = send.read();
                match writable(cx, qp.pd, &local) {
                    Ok(memory) => {
                        memory.write(0, &packet.payload);
                        Status::Ok
                    }
                    Err(status) => status,
                }
            }
            status::ACK => Status::Ok,
            status::RNR => Status::RemoteNotReady,
            status::DESTINATION => Status::RemoteBadDestination,
            status::LENGTH => Status::RemoteBadLength,
            _ => Status::RemoteRefused,
        };
        self.complete_send(cx, qp, &send, status);
    }

    /// Handles a message.
    pub(super) fn receive_request(&mut self, cx: &mut Shared, number: u32, packet: &Packet) {
        let header = &packet.header;
        if header.destination_gid != GID {
            return;
        }
        let reliable = header.flags & flag::DATAGRAM == 0;
        let Some(mut qp) = self.qps.remove(number) else {
            if reliable {
                respond(cx, header, status::DESTINATION, Vec::new());
            }
            return;
        };
        if reliable {
            self.receive_reliable(cx, &mut qp, packet);
        } else if !qp.is_srd && qp.receives() && qp.qkey == header.qkey {
            // A datagram without a receive request is lost.
            self.deliver(cx, &mut qp, packet);
        }
        self.qps.put_back(number, qp);
    }

    fn receive_reliable(&mut self, cx: &mut Shared, qp: &mut Qp, packet: &Packet) {
        let header = &packet.header;
        let again = |old: &&Message| old.source == header.source && old.sequence == header.psn;
        if let Some(old) = qp.received.iter().find(again) {
            let answer = old.answer.clone();
            cx.network.send(answer, cx.clock.now());
            return;
        }
        let (status, payload) = if !qp.is_srd || !qp.receives() || qp.qkey != header.qkey {
            (status::DESTINATION, Vec::new())
        } else if header.opcode == operation::RDMA_READ {
            match read(cx, qp, header) {
                Some(data) => {
                    count(&qp.counters, Event::Read);
                    (status::ACK, data)
                }
                None => (status::ACCESS, Vec::new()),
            }
        } else {
            (self.deliver(cx, qp, packet), Vec::new())
        };
        let answer = respond(cx, header, status, payload);
        if status != status::RNR {
            qp.received.push_back(Message {
                source: header.source,
                sequence: header.psn,
                answer,
            });
            if qp.received.len() > REMEMBERED {
                qp.received.pop_front();
            }
        }
    }

    /// Gives a message to the next receive request. Returns the status for the sender.
    fn deliver(&mut self, cx: &mut Shared, qp: &mut Qp, packet: &Packet) -> u8 {
        let header = &packet.header;
        let Some((id, buffers)) = qp.take_receive() else {
            return status::RNR;
        };
        // The provider's users keep 40 bytes free before a datagram. The model clears them.
        let skip = if qp.is_srd { 0 } else { GRH };
        let mut message = vec![0; skip];
        message.extend_from_slice(&packet.payload);
        let (result, answer) = match scatter(cx, qp.pd, &buffers, &message) {
            Ok(()) => (Status::Ok, status::ACK),
            Err(Status::BadLength) => (Status::BadLength, status::LENGTH),
            Err(other) => (other, status::OPERATION),
        };
        // The adapter knows the senders to which the protection domain has an address handle.
        let known = |(_, ah): &(u32, &Ah)| ah.pd == qp.pd && ah.gid == header.source_gid;
        let ah = self.ahs.iter().find(known);
        let ah = ah.map_or(u16::MAX, |(number, _)| (number & 0xffff) as u16);
        let mut entry = Completion {
            length: u16::try_from(message.len()).unwrap_or(u16::MAX),
            ah,
            source: (header.source & 0xffff) as u16,
            source_gid: header.source_gid,
            ..Completion::new(Queue::Receive, id, qp.number, result)
        };
        if header.flags & flag::IMMEDIATE != 0 {
            entry = entry.immediate(header.immediate);
        }
        count(&qp.counters, Event::Received { status: result });
        self.complete(cx, qp.recv_cq, Queue::Receive, &entry);
        answer
    }
}

/// Sends a response, and returns it.
fn respond(cx: &mut Shared, request: &Header, status: u8, payload: Vec<u8>) -> Packet {
    let packet = Packet {
        header: Header {
            kind: packet::RESPONSE,
            status,
            source: request.destination,
            destination: request.source,
            psn: request.psn,
            ..Header::default()
        },
        payload,
    };
    cx.network.send(packet.clone(), cx.clock.now());
    packet
}

/// Copies the data of a SEND from memory of the program.
fn gather(cx: &Shared, pd: u32, buffers: &[Buffer]) -> Result<Vec<u8>, Status> {
    let length = buffers
        .iter()
        .map(|buffer| u64::from(buffer.length))
        .sum::<u64>();
    if length > u64::from(MTU) {
        return Err(Status::BadLength);
    }
    let mut data = Vec::new();
    for buffer in buffers {
        let size = u64::from(buffer.length);
        let memory = cx
            .keys
            .local(buffer.key(), pd, buffer.address(), size, false)
            .ok_or(Status::InvalidKey)?;
        let start = data.len();
        data.resize(start + buffer.length as usize, 0);
        memory.read(0, &mut data[start..]);
    }
    Ok(data)
}

fn writable(cx: &Shared, pd: u32, buffer: &Buffer) -> Result<crate::memory::Pinned, Status> {
    let size = u64::from(buffer.length);
    cx.keys
        .local(buffer.key(), pd, buffer.address(), size, true)
        .ok_or(Status::InvalidKey)
}

/// Copies a message to the buffers of a receive request.
fn scatter(cx: &Shared, pd: u32, buffers: &[Receive], mut data: &[u8]) -> Result<(), Status> {
    for buffer in buffers {
        let (part, rest) = data.split_at(data.len().min(usize::from(buffer.length)));
        data = rest;
        if part.is_empty() {
            continue;
        }
        let size = part.len() as u64;
        cx.keys
            .local(buffer.key(), pd, buffer.address(), size, true)
            .ok_or(Status::InvalidKey)?
            .write(0, part);
    }
    data.is_empty().then_some(()).ok_or(Status::BadLength)
}

/// Reads the memory that an RDMA READ names, if the peer may read it.
fn read(cx: &Shared, qp: &Qp, header: &Header) -> Option<Vec<u8>> {
    let size = u64::from(header.length);
    let memory = cx.keys.remote(
        header.rkey,
        qp.pd,
        qp.number,
        header.address,
        size,
        access::REMOTE_READ,
    )?;
    let mut data = vec![0; header.length as usize];
    memory.read(0, &mut data);
    Some(data)
}
