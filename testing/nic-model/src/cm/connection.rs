//! The state of a connection, its messages that are repeated, and its timers.

use super::event::plain;
use super::message::{self, DREP, DREQ, Message, REJ, REP, REQ, reason};
use super::{Cm, State};
use crate::abi::rdma_cm::{ConnParam, event};
use crate::nic::Shared;

/// States of a connection (`enum ib_cm_state`). A state in which the peer has asked for time is not
/// distinguished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Idle,
    ReqSent,
    ReqReceived,
    RepSent,
    RepReceived,
    Established,
    DreqSent,
    DreqReceived,
    TimeWait,
}

/// Repetitions of a message without response (`CMA_MAX_CM_RETRIES`).
const RETRIES: u32 = 15;
/// Time for a response (`CMA_CM_RESPONSE_TIMEOUT`), in the units of the timeouts.
const RESPONSE_TIMEOUT: u8 = 20;
/// Time that a receiver asks for (`CMA_CM_MRA_SETTING`).
const SERVICE_TIMEOUT: u8 = 24;

/// Returns a time of connection management in nanoseconds (`cm_convert_to_ms`).
fn nanoseconds(exponent: u8) -> u64 {
    1_000_000 << exponent.saturating_sub(8).min(32)
}

/// A message that is repeated until the peer responds.
struct Pending {
    message: Message,
    at: u64,
    retries: u32,
}

pub(super) struct Connection {
    pub(super) phase: Phase,
    /// Process of the peer, or `None` until it has responded to a request.
    pub(super) node: Option<u32>,
    /// Identifier of the peer.
    pub(super) peer: u32,
    pub(super) peer_qpn: u32,
    pub(super) peer_psn: u32,
    pub(super) responder_resources: u8,
    pub(super) initiator_depth: u8,
    pub(super) retry_count: u8,
    pub(super) rnr_retry_count: u8,
    pub(super) packet_life_time: u8,
    pub(super) traffic_class: u8,
    pending: Option<Pending>,
    time_wait_until: Option<u64>,
}

impl Connection {
    pub(super) fn new(phase: Phase, param: &ConnParam, life_time: u8, traffic_class: u8) -> Self {
        Self {
            phase,
            node: None,
            peer: 0,
            peer_qpn: 0,
            peer_psn: 0,
            responder_resources: param.responder_resources,
            initiator_depth: param.initiator_depth,
            retry_count: param.retry_count.min(7),
            rnr_retry_count: param.rnr_retry_count.min(7),
            packet_life_time: life_time,
            traffic_class,
            pending: None,
            time_wait_until: None,
        }
    }

    /// Timeout of acknowledgements of the queue pair.
    pub(super) fn ack_timeout(&self) -> u8 {
        (self.packet_life_time + 1).min(31)
    }

    fn response_time(&self) -> u64 {
        2 * nanoseconds(self.packet_life_time) + nanoseconds(RESPONSE_TIMEOUT)
    }
}

impl Cm {
    /// Sends a message to the peer of an identifier.
    pub(super) fn send(&mut self, cx: &mut Shared, number: u32, message: Message) {
        let Some(connection) = self.ids.get(number).and_then(|id| id.connection.as_ref()) else {
            return;
        };
        if let Some(node) = connection.node {
            let message = Message {
                sender: number,
                receiver: connection.peer,
                ..message
            };
            send_to(cx, node, message);
        } else if message.kind == REQ {
            self.send_request(cx, number, message);
        }
    }

    /// Sends a message, and again until the peer responds.
    pub(super) fn send_until_response(&mut self, cx: &mut Shared, number: u32, message: Message) {
        let now = cx.clock.now();
        if let Some(connection) = self.connection(number) {
            let at = now + connection.response_time();
            connection.pending = Some(Pending {
                message,
                at,
                retries: RETRIES,
            });
            self.next_timer = self.next_timer.min(at);
            self.send(cx, number, message);
        }
    }

    /// Sends the last message of this kind again, if it still waits for a response.
    pub(super) fn repeat(&mut self, cx: &mut Shared, number: u32, kind: u8) {
        if let Some(connection) = self.connection(number)
            && let Some(pending) = &connection.pending
            && pending.message.kind == kind
        {
            let message = pending.message;
            self.send(cx, number, message);
        }
    }

    /// The peer has asked for more time.
    pub(super) fn wait_longer(&mut self, cx: &Shared, number: u32) {
        if let Some(connection) = self.connection(number) {
            let more = nanoseconds(SERVICE_TIMEOUT) + connection.response_time();
            if let Some(pending) = &mut connection.pending {
                pending.at = cx.clock.now() + more;
            }
        }
    }

    pub(super) fn connection(&mut self, number: u32) -> Option<&mut Connection> {
        self.ids.get_mut(number)?.connection.as_mut()
    }

    pub(super) fn phase(&self, number: u32) -> Option<Phase> {
        let id = self.ids.get(number)?;
        id.connection.as_ref().map(|connection| connection.phase)
    }

    /// Changes the state of a connection. The pending message has its response.
    pub(super) fn set_phase(&mut self, number: u32, phase: Phase) {
        if let Some(connection) = self.connection(number) {
            connection.phase = phase;
            connection.pending = None;
        }
    }

    /// Waits until no packet of the connection can arrive (`cm_enter_timewait`).
    pub(super) fn enter_time_wait(&mut self, cx: &Shared, number: u32) {
        self.set_phase(number, Phase::TimeWait);
        if let Some(connection) = self.connection(number) {
            let until = cx.clock.now() + nanoseconds(connection.ack_timeout());
            connection.time_wait_until = Some(until);
            self.next_timer = self.next_timer.min(until);
        }
    }

    /// The connection has ended (`RDMA_CM_EVENT_DISCONNECTED`).
    pub(super) fn report_disconnected(&mut self, number: u32, status: i32) {
        if let Some(id) = self.ids.get_mut(number)
            && id.state == State::Connect
        {
            id.state = State::Disconnect;
            self.post(number, plain(event::DISCONNECTED, status));
        }
    }

    /// Ends the connection of an identifier that is destroyed (`cm_destroy_id`).
    pub(super) fn close_connection(&mut self, cx: &mut Shared, number: u32) {
        let reject = |reason| Message {
            reason,
            ..Message::new(REJ)
        };
        let last = match self.phase(number) {
            Some(Phase::ReqSent) => reject(reason::TIMEOUT),
            Some(Phase::ReqReceived | Phase::RepSent | Phase::RepReceived) => {
                reject(reason::CONSUMER_DEFINED)
            }
            Some(Phase::Established) => Message::new(DREQ),
            Some(Phase::DreqReceived) => Message::new(DREP),
            Some(Phase::Idle | Phase::DreqSent | Phase::TimeWait) | None => return,
        };
        self.send(cx, number, last);
    }

    /// Repeats messages and ends waits whose time has come. Returns `true` if there was work.
    pub(crate) fn step(&mut self, cx: &mut Shared) -> bool {
        for node in cx.network.take_ended() {
            self.peer_ended(cx, node);
        }
        let now = cx.clock.now();
        if now < self.next_timer {
            return false;
        }
        self.next_timer = u64::MAX;
        for number in self.ids.numbers() {
            if let Some(timer) = self.run_timer(cx, number, now) {
                self.next_timer = self.next_timer.min(timer);
            }
        }
        true
    }

    /// Does what the timer of a connection asks for. Returns the time of its next timer.
    fn run_timer(&mut self, cx: &mut Shared, number: u32, now: u64) -> Option<u64> {
        let connection = self.connection(number)?;
        if let Some(until) = connection.time_wait_until {
            if now < until {
                return Some(until);
            }
            connection.time_wait_until = None;
            connection.phase = Phase::Idle;
            if self.is_in(number, State::Disconnect) {
                self.post(number, plain(event::TIMEWAIT_EXIT, 0));
            }
            return None;
        }
        let time = connection.response_time();
        let pending = connection.pending.as_mut()?;
        if now < pending.at {
            return Some(pending.at);
        }
        if pending.retries == 0 {
            self.give_up(cx, number);
            return None;
        }
        pending.retries -= 1;
        pending.at = now + time;
        let message = pending.message;
        self.send(cx, number, message);
        Some(now + time)
    }

    fn is_in(&self, number: u32, state: State) -> bool {
        self.ids.get(number).is_some_and(|id| id.state == state)
    }

    /// The peer has not responded (`cm_process_send_error`).
    fn give_up(&mut self, cx: &Shared, number: u32) {
        if let Some(Phase::ReqSent | Phase::RepSent) = self.phase(number) {
            self.set_phase(number, Phase::Idle);
            if self.is_in(number, State::Connect) {
                self.post(number, plain(event::UNREACHABLE, -libc::ETIMEDOUT));
            }
        } else {
            self.enter_time_wait(cx, number);
            self.report_disconnected(number, -libc::ETIMEDOUT);
        }
    }

    /// The process of a peer has ended. The kernel would close its identifiers.
    fn peer_ended(&mut self, cx: &mut Shared, node: u32) {
        for number in self.ids.numbers() {
            let Some(connection) = self.connection(number) else {
                continue;
            };
            if connection.node != Some(node) {
                continue;
            }
            let kind = match connection.phase {
                Phase::ReqReceived | Phase::RepSent | Phase::ReqSent => REJ,
                Phase::RepReceived | Phase::Established => DREQ,
                Phase::DreqSent => DREP,
                Phase::DreqReceived | Phase::TimeWait | Phase::Idle => continue,
            };
            let message = Message {
                node,
                sender: connection.peer,
                receiver: number,
                reason: reason::TIMEOUT,
                ..Message::new(kind)
            };
            self.receive_message(cx, &message);
        }
    }
}

/// Sends a message to a process.
pub(super) fn send_to(cx: &mut Shared, node: u32, message: Message) {
    let message = Message {
        node: cx.network.node,
        ..message
    };
    cx.network
        .send_management(node, zerocopy::IntoBytes::as_bytes(&message));
}

/// Parameters of a connection event.
pub(super) fn conn_param(message: &Message) -> ConnParam {
    let length = match message.kind {
        REQ => message::REQ_PRIVATE,
        REP => message::REP_PRIVATE,
        _ => message::REJ_PRIVATE,
    };
    let mut param = <ConnParam as zerocopy::FromZeros>::new_zeroed();
    param.private_data[..length].copy_from_slice(&message.private_data[..length]);
    param.private_data_len = u8::try_from(length).expect("at most 196");
    param
}
