//! The sending side: fetching requests, retries, completions and flushes.

use zerocopy::byteorder::network_endian::{U16, U32};

use super::Mlx5;
use super::cqe::{Cqe, Syndrome, kind};
use super::progress::InFlight;
use super::qp::{Qp, Transport};
use super::streams::Streams;
use super::wqe::{self, BLOCK, Data, Work, opcode};
use crate::network::packet::{self, Header, Packet, flag, status};
use crate::nic::Shared;
use crate::qp_state::RTS;

/// Maximum number of requests of a queue pair that wait for a result.
const WINDOW: usize = 32;
/// Requests that a queue pair may start in one step.
pub(super) const BURST: usize = 16;
/// Maximum size of a message, in bytes.
pub(super) const MAX_MESSAGE: u64 = 1 << 30;
/// Maximum size of a datagram, in bytes.
const MAX_DATAGRAM: u64 = 4096;
/// Retry count that means "forever" for a receiver that is not ready.
const RNR_FOREVER: u8 = 7;

impl Qp {
    /// Returns `true` if all posted requests have completed.
    pub(super) fn has_finished_sends(&self) -> bool {
        let posted = self.send_posted();
        self.requester.is_idle()
            && self.streams.as_ref().is_none_or(Streams::is_idle)
            && self.send.as_ref().is_none_or(|ring| ring.taken == posted)
    }
}

impl Mlx5 {
    /// Executes posted requests of a queue pair. Returns `true` if there was work.
    pub(super) fn run_requester(&mut self, cx: &mut Shared, qp: &mut Qp) -> bool {
        if qp.send.is_none() || qp.state != RTS || qp.has_finished_sends() {
            return false;
        }
        if qp.streams.is_some() {
            return self.run_streams(cx, qp);
        }
        let mut worked = self.continue_requests(cx, qp);
        for _ in 0..BURST {
            if !Self::start_next(cx, qp) {
                break;
            }
            worked = true;
        }
        self.retire(cx, qp);
        worked
    }

    /// Sends those requests in flight that are due, again or for the first time. Returns `true` if
    /// there were any.
    pub(super) fn continue_requests(&mut self, cx: &mut Shared, qp: &mut Qp) -> bool {
        let now = cx.clock.now();
        if now < qp.requester.resume_at {
            return false;
        }
        let mut worked = self.check_timeout(cx, qp, now);
        if let Some(first) = qp.requester.resend.take() {
            worked = true;
            for position in first..qp.requester.in_flight.len() {
                Self::transmit(cx, qp, position);
                if sends_one_by_one(qp) && qp.requester.in_flight[position].result.is_none() {
                    break;
                }
            }
        }
        worked
    }

    /// Starts the next request of the queue. Returns `false` if there is none that may start.
    pub(super) fn start_next(cx: &mut Shared, qp: &mut Qp) -> bool {
        let requester = &qp.requester;
        let waits = requester.resume_at > cx.clock.now() && !sends_one_by_one(qp);
        if qp.state != RTS || requester.stopped || waits {
            return false;
        }
        match fetch(qp) {
            None => return false,
            Some(Ok(work)) => Self::start(cx, qp, work),
            Some(Err(malformed)) => refuse(qp, malformed),
        }
        true
    }

    /// Sends the requests again whose acknowledgement is overdue.
    fn check_timeout(&mut self, cx: &mut Shared, qp: &mut Qp, now: u64) -> bool {
        let requester = &mut qp.requester;
        if requester.deadline == 0 || now < requester.deadline {
            return false;
        }
        let first = requester
            .in_flight
            .iter()
            .position(|entry| entry.result.is_none());
        let Some(first) = first else {
            requester.deadline = 0;
            return false;
        };
        self.retry(cx, qp, first, now);
        true
    }

    /// Sends a request and the following ones again, or fails it if there were too many retries.
    fn retry(&mut self, cx: &mut Shared, qp: &mut Qp, first: usize, now: u64) {
        let requester = &mut qp.requester;
        if requester.retries_left == 0 {
            requester.in_flight[first].result = Some(Err(Syndrome::TransportRetryExceeded));
            requester.stopped = true;
            self.retire(cx, qp);
            return;
        }
        requester.retries_left -= 1;
        requester.resend = Some(first);
        let timeout = qp.attr.timeout;
        requester.restart_timer(now, timeout);
    }

    fn start(cx: &mut Shared, qp: &mut Qp, work: Work) {
        let length = work.data.length();
        let packets = u32::try_from(length.div_ceil(u64::from(qp.mtu())))
            .unwrap_or(u32::MAX)
            .max(1);
        let local = matches!(work.opcode, opcode::UMR | opcode::NOP);
        cx.sent += 1;
        let requester = &mut qp.requester;
        requester.in_flight.push_back(InFlight {
            work,
            psn: requester.psn,
            packets,
            result: None,
            data: Vec::new(),
        });
        let position = requester.in_flight.len() - 1;
        if local {
            let result = Self::execute_local(cx, qp, position);
            qp.requester.in_flight[position].result = Some(result);
            qp.requester.stopped = result.is_err();
            return;
        }
        if qp.transport.is_reliable() {
            requester.psn = (requester.psn + packets) & 0x00ff_ffff;
        }
        if requester.deadline == 0 {
            let timeout = qp.attr.timeout;
            requester.restart_timer(cx.clock.now(), timeout);
        }
        let mut earlier = requester.in_flight.range(..position);
        if earlier.any(|entry| entry.result.is_none()) && sends_one_by_one(qp) {
            return;
        }
        Self::transmit(cx, qp, position);
    }

    /// Sends the packet of a request in flight.
    fn transmit(cx: &mut Shared, qp: &mut Qp, position: usize) {
        let entry = &qp.requester.in_flight[position];
        if entry.result.is_some() {
            return;
        }
        let result = match request_packet(cx, qp, entry) {
            Ok(packet) => {
                cx.network.send(packet, cx.clock.now());
                (!qp.transport.is_reliable()).then_some(Ok(()))
            }
            Err(syndrome) => Some(Err(syndrome)),
        };
        let entry = &mut qp.requester.in_flight[position];
        entry.result = result;
        if matches!(result, Some(Err(_))) {
            qp.requester.stopped = true;
        }
    }

    /// Handles a response.
    pub(super) fn receive_response(&mut self, cx: &mut Shared, qp: &mut Qp, packet: &Packet) {
        if qp.streams.is_some() {
            self.receive_in_stream(cx, qp, packet);
        } else {
            self.receive_in_order(cx, qp, packet);
        }
    }

    pub(super) fn receive_in_order(&mut self, cx: &mut Shared, qp: &mut Qp, packet: &Packet) {
        let header = &packet.header;
        let requester = &mut qp.requester;
        let position = requester
            .in_flight
            .iter()
            .position(|entry| entry.psn == header.psn && !is_local(&entry.work));
        let (Some(position), RTS) = (position, qp.state) else {
            return;
        };
        let now = cx.clock.now();
        // An acknowledgement also covers earlier requests, except those that wait for data.
        for earlier in 0..position {
            let entry = &mut requester.in_flight[earlier];
            if entry.result.is_some() {
                continue;
            }
            if entry.work.is_read() {
                self.retry(cx, qp, earlier, now);
                return;
            }
            entry.result = Some(Ok(()));
        }
        let requester = &mut qp.requester;
        if requester.in_flight[position].result.is_some() {
            return;
        }
        let result = match header.status {
            status::ACK => {
                requester.retries_left = qp.attr.retry_cnt;
                requester.rnr_retries_left = qp.attr.rnr_retry;
                let entry = &requester.in_flight[position];
                if entry.work.is_read() {
                    let max = self.max_scattered(qp.send_cq);
                    let in_entry =
                        qp.scatters_responses && (1..=max).contains(&packet.payload.len());
                    if in_entry {
                        let entry = &mut requester.in_flight[position];
                        entry.data.clone_from(&packet.payload);
                    }
                    let entry = &requester.in_flight[position];
                    scatter(cx, qp.pd, &entry.work, &packet.payload, !in_entry)
                } else {
                    Ok(())
                }
            }
            status::RNR => {
                if requester.rnr_retries_left == 0 {
                    Err(Syndrome::RnrRetryExceeded)
                } else {
                    if requester.rnr_retries_left != RNR_FOREVER {
                        requester.rnr_retries_left -= 1;
                    }
                    requester.resend = Some(position);
                    requester.resume_at = now + u64::from(header.length);
                    let timeout = qp.attr.timeout;
                    requester.restart_timer(requester.resume_at, timeout);
                    return;
                }
            }
            status::SEQUENCE => {
                self.retry(cx, qp, position, now);
                return;
            }
            status::INVALID => Err(Syndrome::RemoteInvalidRequest),
            status::ACCESS => Err(Syndrome::RemoteAccess),
            _ => Err(Syndrome::RemoteOperation),
        };
        let one_by_one = sends_one_by_one(qp);
        let requester = &mut qp.requester;
        requester.in_flight[position].result = Some(result);
        requester.stopped |= result.is_err();
        if one_by_one && result.is_ok() {
            requester.resend = Some(position + 1);
        }
        let timeout = qp.attr.timeout;
        requester.restart_timer(now, timeout);
        self.retire(cx, qp);
    }

    /// Completes the oldest requests whose result is known.
    pub(super) fn retire(&mut self, cx: &mut Shared, qp: &mut Qp) {
        while let Some(result) = qp
            .requester
            .in_flight
            .front()
            .and_then(|entry| entry.result)
        {
            let Some(entry) = qp.requester.in_flight.pop_front() else {
                break;
            };
            if let Some(first) = &mut qp.requester.resend {
                *first = first.saturating_sub(1);
            }
            match result {
                Ok(()) => {
                    if entry.work.signaled && !self.complete_send(cx, qp, &entry.work, &entry.data)
                    {
                        self.enter_error(cx, qp);
                        return;
                    }
                }
                Err(syndrome) => {
                    self.fail_send(cx, qp, entry.work.counter, entry.work.opcode, syndrome);
                    self.fail_requester(cx, qp);
                    return;
                }
            }
        }
        if qp.requester.in_flight.is_empty() {
            qp.requester.deadline = 0;
        }
    }

    fn complete_send(&mut self, cx: &mut Shared, qp: &Qp, work: &Work, data: &[u8]) -> bool {
        let Some(cq) = qp.send_cq else {
            return true;
        };
        let cqe = Cqe {
            srqn_uidx: U32::new(qp.uidx),
            byte_cnt: U32::new(u32::try_from(work.data.length()).unwrap_or(u32::MAX)),
            sop_drop_qpn: U32::new(u32::from(work.opcode) << 24 | qp.number),
            wqe_counter: U16::new(work.counter),
            ..Cqe::default()
        };
        self.complete_with(cx, cq, cqe, kind::REQ, false, data)
    }

    pub(super) fn fail_send(
        &mut self,
        cx: &mut Shared,
        qp: &Qp,
        counter: u16,
        op: u8,
        why: Syndrome,
    ) {
        if let Some(cq) = qp.send_cq {
            let cqe = Cqe::error(qp.uidx, qp.number, counter, op, why);
            self.complete(cx, cq, cqe, kind::REQ_ERR, false);
        }
    }

    fn execute_local(
        cx: &mut Shared,
        qp: &Qp,
        position: usize,
    ) -> std::result::Result<(), Syndrome> {
        let work = &qp.requester.in_flight[position].work;
        let Some((umr, segment)) = &work.umr else {
            return Ok(());
        };
        let done = super::umr::execute(&mut cx.keys, qp, work, umr, segment.as_ref());
        done.then_some(()).ok_or(Syndrome::Bind)
    }
}

fn is_local(work: &Work) -> bool {
    matches!(work.opcode, opcode::UMR | opcode::NOP)
}

/// Returns `true` if a request is sent only when the earlier ones have completed. A DC initiator is
/// connected to one target at a time, and in this model a target does not know the order.
fn sends_one_by_one(qp: &Qp) -> bool {
    qp.transport == Transport::DcInitiator
}

/// A malformed request: its counter and its operation.
struct Malformed(u16, u8);

/// Fails a malformed request after those before it, which also stops the queue pair.
fn refuse(qp: &mut Qp, Malformed(counter, opcode): Malformed) {
    let requester = &mut qp.requester;
    requester.in_flight.push_back(InFlight {
        work: Work::new(counter, opcode),
        psn: requester.psn,
        packets: 0,
        result: Some(Err(Syndrome::LocalQpOperation)),
        data: Vec::new(),
    });
    requester.stopped = true;
}

/// Takes the next request from the send queue, if it may start now.
fn fetch(qp: &mut Qp) -> Option<std::result::Result<Work, Malformed>> {
    let posted = qp.send_posted();
    let transport = qp.transport;
    let ring = qp.send.as_mut()?;
    if ring.taken == posted || qp.requester.in_flight.len() >= WINDOW {
        return None;
    }
    let counter = ring.taken;
    let mut bytes = vec![0; BLOCK];
    ring.memory.read(ring.offset(counter), &mut bytes);
    let blocks = wqe::blocks(&bytes);
    bytes.resize(usize::from(blocks) * BLOCK, 0);
    for (block, part) in (0..blocks).zip(bytes.chunks_exact_mut(BLOCK)).skip(1) {
        ring.memory
            .read(ring.offset(counter.wrapping_add(block)), part);
    }
    let Some(work) = wqe::parse(&bytes, qp.number, counter, transport.layout()) else {
        eprintln!(
            "nic-model: malformed request {counter} of queue pair {:#x} ({:?}): {bytes:02x?}",
            qp.number, qp.transport
        );
        ring.take(blocks, posted);
        return Some(Err(Malformed(counter, bytes[3])));
    };
    let reads = qp.requester.reads_in_flight();
    // A fenced request waits for reads; a change of a key waits for everything.
    if (work.fence && reads > 0)
        || (work.is_read() && reads >= usize::from(qp.attr.max_rd_atomic.max(1)))
        || (is_local(&work) && !qp.requester.in_flight.is_empty())
    {
        return None;
    }
    ring.take(blocks, posted);
    Some(Ok(work))
}

/// Builds the packet of a request.
fn request_packet(cx: &Shared, qp: &Qp, entry: &InFlight) -> std::result::Result<Packet, Syndrome> {
    let work = &entry.work;
    let length = work.data.length();
    let limit = if qp.transport == Transport::Ud {
        MAX_DATAGRAM
    } else {
        MAX_MESSAGE
    };
    if length > limit {
        return Err(Syndrome::LocalLength);
    }
    let permitted = match qp.transport {
        Transport::Ud => matches!(work.opcode, opcode::SEND | opcode::SEND_IMM),
        Transport::Uc => !work.is_read(),
        _ => true,
    };
    if !permitted {
        return Err(Syndrome::LocalQpOperation);
    }
    let (address, rkey) = work.remote.unwrap_or_default();
    let (swap_add, compare) = work.atomic.unwrap_or_default();
    let mut header = Header {
        kind: packet::REQUEST,
        opcode: work.opcode,
        flags: work.packet_flags(),
        service_level: qp.attr.dest.sl,
        traffic_class: qp.attr.dest.traffic_class,
        hop_limit: qp.attr.dest.hop_limit,
        source: qp.special.map_or(qp.number, u32::from),
        source_lid: cx.lid,
        destination: qp.attr.dest_qp_num,
        psn: entry.psn,
        packets: entry.packets,
        immediate: u32::from_ne_bytes(work.immediate),
        rkey,
        length: u32::try_from(length).map_err(|_| Syndrome::LocalLength)?,
        srqn: work.srqn,
        stream: qp
            .streams
            .as_ref()
            .map_or(0, |streams| streams.current.into()),
        address,
        swap_add,
        compare,
        ..Header::default()
    };
    if let Some(gid) = cx
        .gids
        .iter()
        .find(|gid| gid.gid_index == u32::from(qp.attr.dest.sgid_index))
    {
        header.source_gid = zerocopy::transmute!(gid.gid);
    }
    header.flags |= match qp.transport {
        Transport::Ud => flag::DATAGRAM,
        Transport::Uc => flag::UNRELIABLE,
        Transport::XrcInitiator => flag::XRC,
        Transport::DcInitiator => flag::DC,
        _ => 0,
    };
    if let Some(av) = &work.address_vector {
        header.destination = cx.network.datagram_destination(av.lid(), av.qpn());
        header.service_level = av.service_level();
        header.traffic_class = av.traffic_class;
        header.hop_limit = av.hop_limit;
        header.flow_label = av.flow_label();
        header.destination_gid = av.gid;
        header.dc_key = av.dc_key();
        // A Q_Key with the highest bit set stands for that of the queue pair.
        header.qkey = if av.qkey() & 0x8000_0000 != 0 {
            qp.attr.qkey
        } else {
            av.qkey()
        };
        if av.has_grh() || cx.link == crate::options::Link::Ethernet {
            header.flags |= flag::GRH;
        }
    }
    let payload = if work.is_read() {
        Vec::new()
    } else {
        gather(cx, qp, &work.data).ok_or(Syndrome::LocalProtection)?
    };
    Ok(Packet { header, payload })
}

/// Reads the data of a request.
fn gather(cx: &Shared, qp: &Qp, data: &Data) -> Option<Vec<u8>> {
    let segments = match data {
        Data::Inline(bytes) => return Some(bytes.clone()),
        Data::Segments(segments) => segments,
    };
    let mut payload = Vec::new();
    for segment in segments {
        let length = segment.length();
        let memory = cx.keys.local(
            segment.lkey(),
            qp.pd?,
            segment.address(),
            u64::from(length),
            false,
        )?;
        let start = payload.len();
        payload.resize(start + length as usize, 0);
        memory.read(0, &mut payload[start..]);
    }
    Some(payload)
}

/// Checks the memory that a request names and, if `writes`, writes the data of the response to it.
fn scatter(
    cx: &Shared,
    pd: Option<u32>,
    work: &Work,
    mut payload: &[u8],
    writes: bool,
) -> std::result::Result<(), Syndrome> {
    let Data::Segments(segments) = &work.data else {
        return Err(Syndrome::LocalQpOperation);
    };
    for segment in segments {
        let length = payload.len().min(segment.length() as usize);
        let memory = pd.and_then(|pd| {
            cx.keys.local(
                segment.lkey(),
                pd,
                segment.address(),
                u64::from(segment.length()),
                true,
            )
        });
        let Some(memory) = memory else {
            return Err(Syndrome::LocalProtection);
        };
        if writes {
            memory.write(0, &payload[..length]);
        }
        payload = &payload[length..];
    }
    Ok(())
}
