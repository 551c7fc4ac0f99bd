//! Connecting, accepting and disconnecting: the commands, and the messages of the peer.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use zerocopy::FromZeros;

use super::address::Address;
use super::connection::{Connection, Phase, conn_param, send_to};
use super::event::plain;
use super::message::{self, DREP, DREQ, MRA, Message, REJ, REP, REQ, RTU, reason};
use super::resolve::service_name;
use super::{Cm, Id, State};
use crate::abi::core::qp_type;
use crate::abi::rdma_cm::{Accept, ConnParam, Connect, EventResp, Reject, event};
use crate::errno::{Errno, Result};
use crate::network::packet::Packet;
use crate::nic::Shared;

/// Returns the private data of a command. Fails with `EINVAL` if the message has no room for it.
fn private_data(data: &[u8; 256], length: u8, room: usize) -> Result<&[u8]> {
    let length = usize::from(length);
    if length > room {
        return Err(Errno::EINVAL);
    }
    Ok(&data[..length])
}

/// Returns the service names under which an address may be listened on, the closest first.
fn service_names(port_space: u16, address: SocketAddr) -> Vec<String> {
    let mut all = vec![address.ip()];
    if address.is_ipv4() {
        all.push(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
    }
    all.push(IpAddr::V6(Ipv6Addr::UNSPECIFIED));
    let name = |ip| service_name(port_space, SocketAddr::new(ip, address.port()));
    all.into_iter().map(name).collect()
}

impl Cm {
    /// Sends a request (`rdma_connect`).
    pub(super) fn connect(&mut self, cx: &mut Shared, file: u32, connect: &Connect) -> Result<()> {
        let number = connect.id;
        let param = &connect.conn_param;
        let id = self.bound_id(file, number)?;
        if id.state != State::RouteResolved {
            return Err(Errno::EINVAL);
        }
        if id.qp_type == qp_type::UD {
            return Err(Errno::EOPNOTSUPP);
        }
        let connected = [qp_type::RC, qp_type::UC, qp_type::XRC_INI];
        if !connected.contains(&id.qp_type) {
            return Err(Errno::EINVAL);
        }
        let length = param.private_data_len;
        let data = private_data(&param.private_data, length, message::REQ_PRIVATE)?;
        id.qpn = param.qp_num;
        id.srq = param.srq != 0;
        id.state = State::Connect;
        let life_time = id.packet_life_time();
        id.connection = Some(Connection::new(
            Phase::ReqSent,
            param,
            life_time,
            id.traffic_class,
        ));
        let request = Message {
            qp_type: id.qp_type,
            packet_life_time: life_time,
            traffic_class: id.traffic_class,
            port_space: u32::from(id.port_space),
            ece: connect.ece,
            sender: number,
            ..own_part(REQ, id, param)
        };
        let request = request
            .with_addresses(id.source, id.destination)
            .with_private_data(data);
        self.send_until_response(cx, number, request);
        Ok(())
    }

    /// Sends a request to the listener at the destination, in this process or another one.
    pub(super) fn send_request(&mut self, cx: &mut Shared, number: u32, request: Message) {
        let Some(id) = self.ids.get(number) else {
            return;
        };
        let Some(address) = id.destination.ip() else {
            return;
        };
        let names = service_names(id.port_space, address);
        let request = Message {
            node: cx.network.node,
            sender: number,
            ..request
        };
        let bytes = zerocopy::IntoBytes::as_bytes(&request);
        if !cx.network.send_to_service(&names, bytes) {
            // The host at the address has no listener.
            let node = cx.network.node;
            send_to(cx, node, request.rejection(reason::INVALID_SERVICE_ID));
        }
    }

    /// Accepts a request, or confirms a response (`rdma_accept`).
    pub(super) fn accept(&mut self, cx: &mut Shared, file: u32, accept: &Accept) -> Result<()> {
        let id = self.bound_id(file, accept.id)?;
        if id.state != State::Connect {
            return Err(Errno::EINVAL);
        }
        let result = if accept.conn_param.valid == 0 {
            self.confirm(cx, accept.id)
        } else {
            self.respond(cx, accept)
        };
        if result.is_err() {
            let reject = Message {
                reason: reason::CONSUMER_DEFINED,
                ..Message::new(REJ)
            };
            // What cannot be rejected was already over.
            let _ = self.send_rejection(cx, accept.id, reject);
        }
        result
    }

    fn confirm(&mut self, cx: &mut Shared, number: u32) -> Result<()> {
        if self.phase(number) != Some(Phase::RepReceived) {
            return Err(Errno::EINVAL);
        }
        self.set_phase(number, Phase::Established);
        self.send(cx, number, Message::new(RTU));
        Ok(())
    }

    fn respond(&mut self, cx: &mut Shared, accept: &Accept) -> Result<()> {
        let param = &accept.conn_param;
        let id = self.ids.get_mut(accept.id).ok_or(Errno::ENOENT)?;
        id.qpn = param.qp_num;
        id.srq = param.srq != 0;
        let length = param.private_data_len;
        let data = private_data(&param.private_data, length, message::REP_PRIVATE)?;
        let response = Message {
            ece: accept.ece,
            ..own_part(REP, id, param)
        };
        let connection = id.connection.as_mut().ok_or(Errno::EINVAL)?;
        if connection.phase != Phase::ReqReceived {
            return Err(Errno::EINVAL);
        }
        connection.phase = Phase::RepSent;
        connection.responder_resources = param.responder_resources;
        connection.initiator_depth = param.initiator_depth;
        id.uid = accept.uid;
        self.send_until_response(cx, accept.id, response.with_private_data(data));
        Ok(())
    }

    /// Rejects a request or a response (`rdma_reject`).
    pub(super) fn reject(&mut self, cx: &mut Shared, file: u32, reject: &Reject) -> Result<()> {
        let reason = match reject.reason {
            0 => reason::CONSUMER_DEFINED,
            known @ (reason::CONSUMER_DEFINED | reason::VENDOR_OPTION_NOT_SUPPORTED) => known,
            _ => return Err(Errno::EINVAL),
        };
        self.bound_id(file, reject.id)?;
        let length = reject.private_data_len;
        let data = private_data(&reject.private_data, length, message::REJ_PRIVATE)?;
        let rejection = Message {
            reason,
            ..Message::new(REJ)
        };
        self.send_rejection(cx, reject.id, rejection.with_private_data(data))
    }

    fn send_rejection(&mut self, cx: &mut Shared, number: u32, rejection: Message) -> Result<()> {
        match self.phase(number) {
            Some(Phase::ReqSent | Phase::ReqReceived | Phase::RepReceived) => {
                self.send(cx, number, rejection);
                self.set_phase(number, Phase::Idle);
            }
            Some(Phase::RepSent) => {
                self.send(cx, number, rejection);
                self.enter_time_wait(cx, number);
            }
            _ => return Err(Errno::EINVAL),
        }
        Ok(())
    }

    /// Disconnects, or agrees to it (`rdma_disconnect`).
    pub(super) fn disconnect(&mut self, cx: &mut Shared, file: u32, number: u32) -> Result<()> {
        self.bound_id(file, number)?;
        match self.phase(number).ok_or(Errno::EINVAL)? {
            Phase::Established => {
                self.set_phase(number, Phase::DreqSent);
                self.send_until_response(cx, number, Message::new(DREQ));
            }
            Phase::DreqReceived => {
                self.send(cx, number, Message::new(DREP));
                self.enter_time_wait(cx, number);
            }
            _ => {}
        }
        Ok(())
    }

    /// The queue pair has received a message before the confirmation (`cm_establish`).
    pub(super) fn notify_established(&mut self, number: u32) -> Result<()> {
        match self.phase(number) {
            Some(Phase::RepSent) => {
                self.set_phase(number, Phase::Established);
                self.post(number, plain(event::ESTABLISHED, 0));
                Ok(())
            }
            Some(Phase::Established) => Err(Errno::EISCONN),
            _ => Err(Errno::EINVAL),
        }
    }

    /// Handles a packet of connection management.
    pub(crate) fn receive(&mut self, cx: &mut Shared, packet: &Packet) {
        if let Some(message) = Message::from_packet(packet) {
            self.receive_message(cx, &message);
        }
    }

    pub(super) fn receive_message(&mut self, cx: &mut Shared, message: &Message) {
        if message.kind == REQ {
            self.receive_request(cx, message);
            return;
        }
        let number = message.receiver;
        let known = self.connection(number).is_some_and(|connection| {
            match connection.node {
                Some(node) => node == message.node && connection.peer == message.sender,
                // The first response names the peer.
                None => matches!(message.kind, MRA | REP | REJ),
            }
        });
        if !known {
            let response = match message.kind {
                DREQ => Message::new(DREP),
                // The identifier was destroyed before it knew its peer.
                MRA | REP => Message {
                    reason: reason::TIMEOUT,
                    ..Message::new(REJ)
                },
                _ => return,
            };
            let response = Message {
                sender: message.receiver,
                receiver: message.sender,
                ..response
            };
            send_to(cx, message.node, response);
            return;
        }
        if let Some(connection) = self.connection(number)
            && message.sender != 0
        {
            connection.node = Some(message.node);
            connection.peer = message.sender;
        }
        let phase = self.phase(number).expect("checked above");
        match (message.kind, phase) {
            (MRA, Phase::ReqSent | Phase::RepSent) => self.wait_longer(cx, number),
            (REP, Phase::ReqSent) => self.receive_response(cx, number, message),
            (REP, Phase::Established) => self.send(cx, number, Message::new(RTU)),
            (REP, Phase::RepReceived) => self.send(cx, number, Message::new(MRA)),
            (RTU, Phase::RepSent) => {
                self.set_phase(number, Phase::Established);
                self.post(number, plain(event::ESTABLISHED, 0));
            }
            (REJ, _) => self.receive_rejection(cx, number, phase, message),
            // A request to disconnect can overtake the confirmation.
            (DREQ, Phase::RepSent | Phase::Established | Phase::DreqSent) => {
                self.set_phase(number, Phase::DreqReceived);
                self.report_disconnected(number, 0);
            }
            (DREQ, Phase::TimeWait) => self.send(cx, number, Message::new(DREP)),
            (DREP, Phase::DreqSent | Phase::DreqReceived) => {
                self.enter_time_wait(cx, number);
                self.report_disconnected(number, 0);
            }
            _ => {}
        }
    }

    fn receive_response(&mut self, cx: &mut Shared, number: u32, message: &Message) {
        self.set_phase(number, Phase::RepReceived);
        if let Some(connection) = self.connection(number) {
            connection.peer_qpn = message.qpn;
            connection.peer_psn = message.psn;
            // What the peer initiates, this side responds to.
            connection.initiator_depth = message.responder_resources;
            connection.responder_resources = message.initiator_depth;
            connection.rnr_retry_count = message.rnr_retry_count;
        }
        self.send(cx, number, Message::new(MRA));
        self.post(number, connect_event(event::CONNECT_RESPONSE, message));
    }

    fn receive_rejection(&mut self, cx: &Shared, number: u32, phase: Phase, message: &Message) {
        match phase {
            Phase::ReqSent | Phase::ReqReceived | Phase::RepSent => {
                self.set_phase(number, Phase::Idle);
            }
            Phase::RepReceived | Phase::Established | Phase::DreqSent => {
                self.enter_time_wait(cx, number);
            }
            Phase::Idle | Phase::DreqReceived | Phase::TimeWait => return,
        }
        if self
            .ids
            .get(number)
            .is_some_and(|id| id.state == State::Connect)
        {
            let response = EventResp {
                status: i32::from(message.reason),
                conn: conn_param(message),
                ..plain(event::REJECTED, 0)
            };
            self.post(number, response);
        }
    }

    /// Returns the listener for a request.
    fn listener(&self, message: &Message, destination: Address) -> Option<u32> {
        let target = destination.ip()?;
        let rank = |id: &Id| {
            let own = id.source.ip()?;
            let matches = id.state == State::Listen
                && u32::from(id.port_space) == message.port_space
                && own.port() == target.port();
            if !matches {
                return None;
            }
            if own.ip() == target.ip() {
                return Some(0);
            }
            let same = own.is_ipv4() == target.is_ipv4();
            let both = own.is_ipv6() && !id.only_family.unwrap_or(false);
            (own.ip().is_unspecified() && (same || both)).then_some(1)
        };
        self.ids
            .iter()
            .filter_map(|(number, id)| Some((rank(id)?, number)))
            .min()
            .map(|(_, number)| number)
    }

    /// Handles a request (`cma_ib_req_handler`).
    fn receive_request(&mut self, cx: &mut Shared, message: &Message) {
        let repeated = self.ids.iter().find_map(|(number, id)| {
            let connection = id.connection.as_ref()?;
            let same = connection.node == Some(message.node)
                && connection.peer == message.sender
                && connection.peer_psn == message.psn
                && !id.owns_port;
            same.then_some((number, connection.phase))
        });
        match repeated {
            Some((number, Phase::ReqReceived)) => {
                self.send(cx, number, Message::new(MRA));
                return;
            }
            Some((number, Phase::RepSent)) => {
                self.repeat(cx, number, REP);
                return;
            }
            Some((_, Phase::Established)) => return,
            _ => {}
        }
        let addresses = (
            Address::parse(&message.source),
            Address::parse(&message.destination),
        );
        let (Ok(source), Ok(destination)) = addresses else {
            return;
        };
        let Some(listener) = self.listener(message, destination) else {
            let rejection = message.rejection(reason::INVALID_SERVICE_ID);
            send_to(cx, message.node, rejection);
            return;
        };
        let owner = self.ids.get(listener).expect("found above");
        if owner.qp_type != message.qp_type && owner.qp_type != 0 {
            send_to(
                cx,
                message.node,
                message.rejection(reason::CONSUMER_DEFINED),
            );
            return;
        }
        let mut id = Id::new(owner.file, 0, owner.port_space, message.qp_type);
        id.state = State::Connect;
        id.source = destination;
        id.destination = source;
        (id.has_device, id.has_route) = (true, true);
        id.traffic_class = message.traffic_class;
        let mut param = conn_param(message);
        // What the peer initiates, this side responds to.
        param.responder_resources = message.initiator_depth;
        param.initiator_depth = message.responder_resources;
        param.retry_count = message.retry_count;
        param.rnr_retry_count = message.rnr_retry_count;
        let mut connection = Connection::new(
            Phase::ReqReceived,
            &param,
            message.packet_life_time,
            message.traffic_class,
        );
        connection.node = Some(message.node);
        connection.peer = message.sender;
        connection.peer_qpn = message.qpn;
        connection.peer_psn = message.psn;
        id.connection = Some(connection);
        let Ok(number) = self.ids.insert(id) else {
            return;
        };
        let mut response = connect_event(event::CONNECT_REQUEST, message);
        response.conn.retry_count = message.retry_count;
        if self.post_request(listener, number, response) {
            self.send(cx, number, Message::new(MRA));
        } else {
            // The peer sends the request again later.
            self.ids.remove(number);
        }
    }
}

/// Returns a message with the parameters of this side.
fn own_part(kind: u8, id: &Id, param: &ConnParam) -> Message {
    Message {
        srq: u8::from(id.srq),
        flow_control: param.flow_control,
        retry_count: param.retry_count.min(7),
        rnr_retry_count: param.rnr_retry_count.min(7),
        responder_resources: param.responder_resources,
        initiator_depth: param.initiator_depth,
        qpn: id.qpn,
        psn: id.psn,
        ..Message::new(kind)
    }
}

/// Returns the event of a request or a response.
fn connect_event(kind: u32, message: &Message) -> EventResp {
    let conn = ConnParam {
        qp_num: message.qpn,
        srq: message.srq,
        responder_resources: message.initiator_depth,
        initiator_depth: message.responder_resources,
        flow_control: message.flow_control,
        rnr_retry_count: message.rnr_retry_count,
        ..conn_param(message)
    };
    EventResp {
        event: kind,
        conn,
        ece: message.ece,
        ..EventResp::new_zeroed()
    }
}
