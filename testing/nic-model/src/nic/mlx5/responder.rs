//! The receiving side: order, memory access, receive requests and responses.

use zerocopy::byteorder::network_endian::{U16, U32};

use super::Mlx5;
use super::cqe::{Cqe, Syndrome, kind};
use super::progress::psn_distance;
use super::qp::{Qp, Transport};
use super::srq::Receive;
use super::wqe::{opcode, receive_segments};
use crate::abi::core::{access, event};
use crate::network::packet::{self, Header, Packet, flag, status};
use crate::nic::Shared;
use crate::qp_state::{RTR, RTS, SQD, SQE};

/// Results of atomic operations that are kept for repeated requests.
const KEPT_RESULTS: usize = 16;
/// Partition key of all ports.
const DEFAULT_PKEY: u32 = 0xffff;
/// Size of a global route header, in bytes. It precedes the data of a datagram.
const GRH: usize = 40;

/// A request that is refused: the status of the response.
struct Refused(u8);

type Answer = std::result::Result<Vec<u8>, Refused>;

/// The queues and the protection domain that receive a message.
struct Receiver {
    srq: Option<u32>,
    cq: Option<u32>,
    pd: Option<u32>,
    uidx: u32,
}

/// Returns the wait that a timer code means, in nanoseconds (IBTA, "RNR NAK timer field").
fn rnr_wait(code: u8) -> u32 {
    const HUNDREDTHS_OF_MS: [u32; 32] = [
        65_536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1_024,
        1_536, 2_048, 3_072, 4_096, 6_144, 8_192, 12_288, 16_384, 24_576, 32_768, 49_152,
    ];
    HUNDREDTHS_OF_MS[usize::from(code & 31)] * 10_000
}

impl Mlx5 {
    /// Handles a request from a peer.
    pub(super) fn receive_request(&mut self, cx: &mut Shared, qp: &mut Qp, packet: &Packet) {
        if !matches!(qp.state, RTR | RTS | SQD | SQE) || !accepts(qp, &packet.header) {
            return;
        }
        match qp.transport {
            Transport::Ud => self.receive_datagram(cx, qp, packet),
            Transport::Uc => {
                // A lost message is not noticed.
                if self
                    .execute(cx, qp, packet)
                    .is_err_and(|why| why.0 != status::RNR)
                {
                    self.fail(cx, qp, status::ACCESS);
                }
            }
            _ => self.receive_reliable(cx, qp, packet),
        }
    }

    fn receive_reliable(&mut self, cx: &mut Shared, qp: &mut Qp, packet: &Packet) {
        let header = &packet.header;
        // A DC target serves many initiators, so it keeps no order.
        let ordered = qp.transport != Transport::DcTarget;
        let distance = if ordered {
            psn_distance(header.psn, qp.responder.psn)
        } else {
            0
        };
        if distance > 0 {
            if !std::mem::replace(&mut qp.responder.reported, true) {
                let psn = qp.responder.psn;
                respond(cx, qp, header, psn, status::SEQUENCE, Vec::new());
            }
            return;
        }
        if distance < 0 {
            self.repeat(cx, qp, packet);
            return;
        }
        match self.execute(cx, qp, packet) {
            Ok(data) => {
                qp.responder.psn = (header.psn + header.packets) & 0x00ff_ffff;
                qp.responder.reported = false;
                respond(cx, qp, header, header.psn, status::ACK, data);
            }
            Err(Refused(status::RNR)) => {
                respond(cx, qp, header, header.psn, status::RNR, Vec::new());
            }
            Err(Refused(status)) => {
                respond(cx, qp, header, header.psn, status, Vec::new());
                self.fail(cx, qp, status);
            }
        }
    }

    /// Answers a request that was executed before.
    fn repeat(&mut self, cx: &mut Shared, qp: &mut Qp, packet: &Packet) {
        let header = &packet.header;
        let data = match header.opcode {
            opcode::RDMA_READ => match self.execute(cx, qp, packet) {
                Ok(data) => data,
                Err(_) => return,
            },
            opcode::ATOMIC_CS | opcode::ATOMIC_FA => {
                let kept = qp
                    .responder
                    .atomics
                    .iter()
                    .find(|(psn, _)| *psn == header.psn);
                match kept {
                    Some((_, result)) => result.to_ne_bytes().to_vec(),
                    None => return,
                }
            }
            _ => Vec::new(),
        };
        respond(cx, qp, header, header.psn, status::ACK, data);
    }

    /// Moves the queue pair to the error state after a request that it refused.
    fn fail(&mut self, cx: &mut Shared, qp: &mut Qp, status: u8) {
        if qp.transport == Transport::DcTarget {
            return;
        }
        let event = if status == status::ACCESS {
            event::QP_ACCESS_ERR
        } else {
            event::QP_REQ_ERR
        };
        qp.report(cx, event);
        self.enter_error(cx, qp);
    }

    fn execute(&mut self, cx: &mut Shared, qp: &mut Qp, packet: &Packet) -> Answer {
        let receiver = self.receiver(qp, &packet.header)?;
        let answer = match packet.header.opcode {
            opcode::RDMA_WRITE | opcode::RDMA_WRITE_IMM => {
                self.execute_write(cx, qp, &receiver, packet)
            }
            opcode::RDMA_READ => execute_read(cx, qp, &receiver, &packet.header),
            opcode::ATOMIC_CS | opcode::ATOMIC_FA => {
                execute_atomic(cx, qp, &receiver, &packet.header)
            }
            opcode::SEND | opcode::SEND_IMM | opcode::SEND_INVAL => {
                self.execute_send(cx, qp, &receiver, packet)
            }
            _ => Err(Refused(status::INVALID)),
        };
        cx.received += u64::from(answer.is_ok());
        qp.responder.executed += u64::from(answer.is_ok());
        answer
    }

    /// Returns where a message is received. An XRC message names its shared receive queue.
    fn receiver(&self, qp: &Qp, header: &Header) -> std::result::Result<Receiver, Refused> {
        if header.flags & flag::XRC == 0 {
            return Ok(Receiver {
                srq: qp.srq,
                cq: qp.recv_cq,
                pd: qp.pd,
                uidx: qp.uidx,
            });
        }
        let found = self
            .srqs
            .get(header.srqn)
            .and_then(|srq| srq.xrc.map(|(xrcd, cq)| (srq, xrcd, cq)));
        match found {
            Some((srq, xrcd, cq)) if Some(xrcd) == qp.xrcd => Ok(Receiver {
                srq: Some(header.srqn),
                cq: Some(cq),
                pd: Some(srq.pd),
                uidx: srq.uidx,
            }),
            _ => Err(Refused(status::INVALID)),
        }
    }

    fn execute_write(
        &mut self,
        cx: &mut Shared,
        qp: &mut Qp,
        receiver: &Receiver,
        packet: &Packet,
    ) -> Answer {
        let header = &packet.header;
        let immediate = header.opcode == opcode::RDMA_WRITE_IMM;
        if immediate && !self.has_receive(qp, receiver) {
            return Err(Refused(status::RNR));
        }
        if header.length > 0 {
            let memory = remote(cx, qp, receiver, header, access::REMOTE_WRITE)?;
            memory.write(0, &packet.payload);
        }
        if immediate {
            let receive = self
                .take_receive(cx, qp, receiver)
                .ok_or(Refused(status::RNR))?;
            let cqe = receive_cqe(qp, receiver, header, &receive, header.length);
            self.deliver(cx, qp, receiver, cqe, kind::RESP_WR_IMM, header, &[]);
        }
        Ok(Vec::new())
    }

    fn execute_send(
        &mut self,
        cx: &mut Shared,
        qp: &mut Qp,
        receiver: &Receiver,
        packet: &Packet,
    ) -> Answer {
        let header = &packet.header;
        let receive = self
            .take_receive(cx, qp, receiver)
            .ok_or(Refused(status::RNR))?;
        let in_entry = qp.scatters_messages
            && (1..=self.max_scattered(receiver.cq)).contains(&packet.payload.len());
        if let Err(syndrome) = store(cx, receiver, &receive, &[&packet.payload], !in_entry) {
            self.fail_receive(cx, qp, receiver, receive.counter, syndrome);
            return Err(Refused(if syndrome == Syndrome::LocalLength {
                status::INVALID
            } else {
                status::OPERATION
            }));
        }
        let mut kind = kind::RESP_SEND;
        match header.opcode {
            opcode::SEND_IMM => kind = kind::RESP_SEND_IMM,
            opcode::SEND_INVAL => {
                kind = kind::RESP_SEND_INV;
                let key = u32::from_be(header.immediate);
                let pd = receiver.pd.unwrap_or(0);
                if !cx.keys.unbind(key, pd, qp.number) {
                    self.fail_receive(
                        cx,
                        qp,
                        receiver,
                        receive.counter,
                        Syndrome::RemoteInvalidRequest,
                    );
                    return Err(Refused(status::INVALID));
                }
            }
            _ => {}
        }
        let cqe = receive_cqe(qp, receiver, header, &receive, header.length);
        let data: &[u8] = if in_entry { &packet.payload } else { &[] };
        self.deliver(cx, qp, receiver, cqe, kind, header, data);
        Ok(Vec::new())
    }

    fn receive_datagram(&mut self, cx: &mut Shared, qp: &mut Qp, packet: &Packet) {
        let header = &packet.header;
        if header.qkey != qp.attr.qkey {
            return;
        }
        let receiver = Receiver {
            srq: qp.srq,
            cq: qp.recv_cq,
            pd: qp.pd,
            uidx: qp.uidx,
        };
        let Some(receive) = self.take_receive(cx, qp, &receiver) else {
            return;
        };
        let grh = route_header(cx, header);
        if let Err(syndrome) = store(cx, &receiver, &receive, &[&grh, &packet.payload], true) {
            self.fail_receive(cx, qp, &receiver, receive.counter, syndrome);
            self.enter_error(cx, qp);
            return;
        }
        let length = header.length + u32::try_from(GRH).unwrap_or(0);
        let mut cqe = receive_cqe(qp, &receiver, header, &receive, length);
        let grh_kind = u32::from(header.flags & flag::GRH != 0) << 28;
        let level = u32::from(header.service_level) << 24;
        cqe.flags_rqpn = U32::new(header.source | grh_kind | level);
        if qp.special.is_some() {
            // The entry has the partition key in place of immediate data.
            cqe.imm_inval_pkey = DEFAULT_PKEY.to_be_bytes();
        }
        let kind = if header.opcode == opcode::SEND_IMM {
            kind::RESP_SEND_IMM
        } else {
            kind::RESP_SEND
        };
        self.deliver(cx, qp, &receiver, cqe, kind, header, &[]);
    }

    fn has_receive(&self, qp: &Qp, receiver: &Receiver) -> bool {
        match receiver.srq {
            Some(srq) => self.srqs.get(srq).is_some_and(|srq| !srq.is_empty()),
            None => qp
                .receive
                .as_ref()
                .is_some_and(|ring| ring.taken != qp.receive_posted()),
        }
    }

    fn take_receive(
        &mut self,
        cx: &mut Shared,
        qp: &mut Qp,
        receiver: &Receiver,
    ) -> Option<Receive> {
        if let Some(srq) = receiver.srq {
            return self.srqs.get_mut(srq)?.take(cx);
        }
        let posted = qp.receive_posted();
        let ring = qp.receive.as_mut()?;
        if ring.taken == posted {
            return None;
        }
        let counter = ring.taken;
        let mut segments = vec![0; 1 << ring.shift];
        ring.memory.read(ring.offset(counter), &mut segments);
        ring.taken = counter.wrapping_add(1);
        Some(Receive { counter, segments })
    }

    fn fail_receive(
        &mut self,
        cx: &mut Shared,
        qp: &Qp,
        receiver: &Receiver,
        counter: u16,
        why: Syndrome,
    ) {
        if let Some(cq) = receiver.cq {
            let cqe = Cqe::error(receiver.uidx, qp.number, counter, 0, why);
            self.complete(cx, cq, cqe, kind::RESP_ERR, false);
        }
    }

    #[allow(clippy::too_many_arguments, reason = "the parts of a completion")]
    fn deliver(
        &mut self,
        cx: &mut Shared,
        qp: &mut Qp,
        receiver: &Receiver,
        cqe: Cqe,
        kind: u8,
        header: &Header,
        data: &[u8],
    ) {
        let solicited = header.flags & flag::SOLICITED != 0;
        if let Some(cq) = receiver.cq
            && !self.complete_with(cx, cq, cqe, kind, solicited, data)
        {
            self.enter_error(cx, qp);
        }
    }
}

/// Returns `true` if the queue pair takes messages of this kind from this source.
fn accepts(qp: &Qp, header: &Header) -> bool {
    let flags = header.flags;
    let kind = flags & (flag::DATAGRAM | flag::UNRELIABLE | flag::DC | flag::XRC);
    let from_peer = header.source == qp.attr.dest_qp_num;
    match qp.transport {
        Transport::Rc => kind == 0 && from_peer,
        Transport::Uc => kind == flag::UNRELIABLE && from_peer,
        Transport::Ud => kind == flag::DATAGRAM,
        Transport::XrcTarget => kind == flag::XRC && from_peer,
        Transport::DcTarget => kind == flag::DC && header.dc_key == qp.dc_key,
        Transport::XrcInitiator | Transport::DcInitiator => false,
    }
}

fn respond(cx: &mut Shared, qp: &Qp, request: &Header, psn: u32, status: u8, payload: Vec<u8>) {
    let header = Header {
        kind: packet::RESPONSE,
        status,
        source: qp.number,
        destination: request.source,
        stream: request.stream,
        psn,
        length: if status == status::RNR {
            rnr_wait(qp.attr.min_rnr_timer)
        } else {
            0
        },
        ..Header::default()
    };
    let now = cx.clock.now();
    cx.network.send(Packet { header, payload }, now);
}

/// Returns the memory that a request accesses, if the queue pair and the key allow it.
fn remote(
    cx: &Shared,
    qp: &Qp,
    receiver: &Receiver,
    header: &Header,
    need: u32,
) -> std::result::Result<crate::memory::Pinned, Refused> {
    let length = if need == access::REMOTE_ATOMIC {
        8
    } else {
        u64::from(header.length)
    };
    receiver
        .pd
        .filter(|_| qp.attr.qp_access_flags & need != 0)
        .and_then(|pd| {
            cx.keys
                .remote(header.rkey, pd, qp.number, header.address, length, need)
        })
        .ok_or(Refused(status::ACCESS))
}

fn execute_read(cx: &Shared, qp: &Qp, receiver: &Receiver, header: &Header) -> Answer {
    if qp.attr.max_dest_rd_atomic == 0 && qp.transport == Transport::Rc {
        return Err(Refused(status::INVALID));
    }
    let mut data = vec![0; header.length as usize];
    if header.length > 0 {
        remote(cx, qp, receiver, header, access::REMOTE_READ)?.read(0, &mut data);
    }
    Ok(data)
}

fn execute_atomic(cx: &Shared, qp: &mut Qp, receiver: &Receiver, header: &Header) -> Answer {
    if !header.address.is_multiple_of(8) || header.length != 8 {
        return Err(Refused(status::INVALID));
    }
    let memory = remote(cx, qp, receiver, header, access::REMOTE_ATOMIC)?;
    let old = if header.opcode == opcode::ATOMIC_FA {
        memory.update_u64(|old| Some(old.wrapping_add(header.swap_add)))
    } else {
        memory.update_u64(|old| (old == header.compare).then_some(header.swap_add))
    };
    let kept = &mut qp.responder.atomics;
    kept.push_back((header.psn, old));
    if kept.len() > KEPT_RESULTS {
        kept.pop_front();
    }
    Ok(old.to_ne_bytes().to_vec())
}

fn receive_cqe(
    qp: &Qp,
    receiver: &Receiver,
    header: &Header,
    receive: &Receive,
    length: u32,
) -> Cqe {
    Cqe {
        slid: U16::new(header.source_lid),
        flags_rqpn: U32::new(header.source),
        srqn_uidx: U32::new(receiver.uidx),
        imm_inval_pkey: header.immediate.to_ne_bytes(),
        byte_cnt: U32::new(length),
        sop_drop_qpn: U32::new(qp.number),
        wqe_counter: U16::new(receive.counter),
        ..Cqe::default()
    }
}

/// Checks the memory of a receive request and, if `writes`, writes a message to it.
fn store(
    cx: &Shared,
    receiver: &Receiver,
    receive: &Receive,
    parts: &[&[u8]],
    writes: bool,
) -> std::result::Result<(), Syndrome> {
    let message = parts.concat();
    let mut rest = message.as_slice();
    for segment in receive_segments(&receive.segments) {
        if rest.is_empty() {
            break;
        }
        let length = rest.len().min(segment.length() as usize);
        let memory = receiver.pd.and_then(|pd| {
            cx.keys
                .local(segment.lkey(), pd, segment.address(), length as u64, true)
        });
        let Some(memory) = memory else {
            return Err(Syndrome::LocalProtection);
        };
        if writes {
            memory.write(0, &rest[..length]);
        }
        rest = &rest[length..];
    }
    if rest.is_empty() {
        Ok(())
    } else {
        Err(Syndrome::LocalLength)
    }
}

/// Returns the global route header of a datagram, or as many zeros.
fn route_header(cx: &Shared, header: &Header) -> [u8; GRH] {
    let mut grh = [0; GRH];
    if header.flags & flag::GRH == 0 {
        return grh;
    }
    let payload = u16::try_from(header.length).unwrap_or(u16::MAX);
    let v4 = |gid: &[u8; 16]| gid.starts_with(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff]);
    if cx.link == crate::options::Link::Ethernet && v4(&header.destination_gid) {
        // The IPv4 header of RoCE v2 is at the end.
        grh[20] = 0x45;
        grh[21] = header.traffic_class;
        grh[22..24].copy_from_slice(&(payload.saturating_add(48)).to_be_bytes());
        grh[28] = header.hop_limit;
        grh[29] = 17;
        grh[32..36].copy_from_slice(&header.source_gid[12..]);
        grh[36..40].copy_from_slice(&header.destination_gid[12..]);
        return grh;
    }
    let first = 6 << 28 | u32::from(header.traffic_class) << 20 | header.flow_label;
    grh[..4].copy_from_slice(&first.to_be_bytes());
    grh[4..6].copy_from_slice(&payload.saturating_add(24).to_be_bytes());
    grh[6] = 0x1b;
    grh[7] = header.hop_limit;
    grh[8..24].copy_from_slice(&header.source_gid);
    grh[24..].copy_from_slice(&header.destination_gid);
    grh
}
