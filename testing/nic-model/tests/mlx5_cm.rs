//! The model of rdma_cm under librdmacm: errors of commands, and the attributes of queue pairs.
#![allow(unsafe_code, reason = "calls librdmacm")]

use std::io::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::ptr;
use std::sync::{Mutex, PoisonError};

use nic_model::{Link, Options};
use nix::sys::socket::SockaddrStorage;
use rdma_sys::{
    IBV_QP_RQ_PSN, IBV_QP_SQ_PSN, IBV_QP_TIMEOUT, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS,
    RDMA_CM_EVENT_ADDR_RESOLVED, RDMA_CM_EVENT_CONNECT_REQUEST, RDMA_CM_EVENT_CONNECT_RESPONSE,
    RDMA_CM_EVENT_DISCONNECTED, RDMA_CM_EVENT_ESTABLISHED, RDMA_CM_EVENT_REJECTED,
    RDMA_CM_EVENT_ROUTE_RESOLVED, RDMA_PS_TCP, ibv_qp_attr, rdma_accept, rdma_ack_cm_event,
    rdma_bind_addr, rdma_cm_event, rdma_cm_id, rdma_conn_param, rdma_connect,
    rdma_create_event_channel, rdma_create_id, rdma_destroy_event_channel, rdma_destroy_id,
    rdma_establish, rdma_event_channel, rdma_get_cm_event, rdma_get_src_port, rdma_init_qp_attr,
    rdma_listen, rdma_reject, rdma_resolve_addr, rdma_resolve_route,
};

/// The first call initializes librdmacm, which other threads must not use before.
static FIRST_CALL: Mutex<()> = Mutex::new(());

/// Number that a queue pair would have.
const QPN: u32 = 77;

/// Returns the error number of a call that fails, or 0.
fn errno(returned: i32) -> i32 {
    if returned == 0 {
        return 0;
    }
    Error::last_os_error().raw_os_error().expect("an error")
}

/// An identifier with its own channel.
struct End {
    channel: *mut rdma_event_channel,
    id: *mut rdma_cm_id,
}

impl End {
    fn new() -> Self {
        nic_model::start(Options::new().link(Link::Ethernet)).expect("start of the model");
        let guard = FIRST_CALL.lock().unwrap_or_else(PoisonError::into_inner);
        let mut id = ptr::null_mut();
        // SAFETY: the channel is valid, and so is the pointer for the result.
        unsafe {
            let channel = rdma_create_event_channel();
            drop(guard);
            assert!(!channel.is_null(), "{}", Error::last_os_error());
            let created = rdma_create_id(channel, &raw mut id, ptr::null_mut(), RDMA_PS_TCP);
            assert_eq!(errno(created), 0);
            Self { channel, id }
        }
    }

    fn bind(&self, port: u16) -> i32 {
        let address = SockaddrStorage::from(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        // SAFETY: the identifier exists and librdmacm only reads the address.
        errno(unsafe { rdma_bind_addr(self.id, (&raw const address).cast_mut().cast()) })
    }

    fn listen(&self) -> i32 {
        // SAFETY: the identifier exists.
        errno(unsafe { rdma_listen(self.id, 4) })
    }

    fn listener() -> (Self, u16) {
        let end = Self::new();
        assert_eq!((end.bind(0), end.listen()), (0, 0));
        // SAFETY: the identifier exists.
        let port = unsafe { rdma_get_src_port(end.id) };
        (end, u16::from_be(port))
    }

    /// Returns an identifier whose route to the port is resolved.
    fn route(port: u16) -> Self {
        let end = Self::new();
        let address = SockaddrStorage::from(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        let to = (&raw const address).cast_mut().cast();
        // SAFETY: the identifier exists and librdmacm only reads the address.
        let resolved = unsafe { rdma_resolve_addr(end.id, ptr::null_mut(), to, 1000) };
        assert_eq!(errno(resolved), 0);
        end.expect(RDMA_CM_EVENT_ADDR_RESOLVED);
        // SAFETY: the identifier is bound to a device.
        assert_eq!(errno(unsafe { rdma_resolve_route(end.id, 1000) }), 0);
        end.expect(RDMA_CM_EVENT_ROUTE_RESOLVED);
        end
    }

    fn connect(&self, private_data: &[u8]) -> i32 {
        let mut param = param(private_data);
        // SAFETY: the identifier exists and the private data is valid during the call.
        errno(unsafe { rdma_connect(self.id, &raw mut param) })
    }

    /// Waits for an event and returns it without its pointers, with its identifier.
    fn expect(&self, kind: u32) -> rdma_cm_event {
        let mut event = ptr::null_mut();
        // SAFETY: the channel exists, and the event is copied before it is acknowledged.
        unsafe {
            let got = rdma_get_cm_event(self.channel, &raw mut event);
            assert_eq!(errno(got), 0);
            let copy = ptr::read(event);
            assert_eq!(rdma_ack_cm_event(event), 0);
            assert_eq!(copy.event, kind, "status {}", copy.status);
            copy
        }
    }

    /// Returns the attributes and their mask for a state, or an error number.
    fn attributes(&self, state: u32) -> Result<(ibv_qp_attr, u32), i32> {
        let mut attributes = ibv_qp_attr {
            qp_state: state,
            ..Default::default()
        };
        let mut mask = 0;
        // SAFETY: the identifier exists and the pointers are valid for writing.
        match errno(unsafe { rdma_init_qp_attr(self.id, &raw mut attributes, &raw mut mask) }) {
            0 => Ok((attributes, mask.cast_unsigned())),
            errno => Err(errno),
        }
    }
}

impl Drop for End {
    fn drop(&mut self) {
        // SAFETY: nothing uses the identifier and the channel any more.
        unsafe {
            rdma_destroy_id(self.id);
            if !self.channel.is_null() {
                rdma_destroy_event_channel(self.channel);
            }
        }
    }
}

fn param(private_data: &[u8]) -> rdma_conn_param {
    rdma_conn_param {
        qp_num: QPN,
        retry_count: 7,
        initiator_depth: 2,
        responder_resources: 1,
        private_data: private_data.as_ptr().cast(),
        private_data_len: u8::try_from(private_data.len()).expect("short"),
        ..Default::default()
    }
}

/// Connects, and returns both ends before the request is answered.
fn request(listener: &End, port: u16) -> (End, End) {
    let active = End::route(port);
    assert_eq!(active.connect(b""), 0);
    let event = listener.expect(RDMA_CM_EVENT_CONNECT_REQUEST);
    let passive = End {
        channel: ptr::null_mut(),
        id: event.id,
    };
    (active, passive)
}

#[test]
fn commands_in_a_wrong_state_are_refused() {
    let (listener, port) = End::listener();
    assert_eq!(listener.bind(0), libc::EINVAL);
    assert_eq!(listener.listen(), libc::EINVAL);
    let active = End::route(port);
    assert_eq!(active.listen(), libc::EINVAL);
    // The message of a request has room for 56 bytes.
    assert_eq!(active.connect(&[0; 57]), libc::EINVAL);
    assert_eq!(active.connect(&[0; 56]), 0);
    assert_eq!(active.connect(b""), libc::EINVAL);
}

#[test]
fn a_port_has_one_listener() {
    let (listener, port) = End::listener();
    assert_eq!(End::new().bind(port), libc::EADDRINUSE);
    drop(listener);
    assert_eq!(End::new().bind(port), 0);
}

#[test]
fn a_request_without_a_listener_is_rejected() {
    let (listener, port) = End::listener();
    drop(listener);
    let active = End::route(port);
    assert_eq!(active.connect(b""), 0);
    // IB_CM_REJ_INVALID_SERVICE_ID.
    assert_eq!(active.expect(RDMA_CM_EVENT_REJECTED).status, 8);
}

#[test]
fn a_rejection_names_the_reason() {
    let (listener, port) = End::listener();
    let (active, passive) = request(&listener, port);
    // SAFETY: the identifier exists.
    assert_eq!(unsafe { rdma_reject(passive.id, ptr::null(), 0) }, 0);
    // IB_CM_REJ_CONSUMER_DEFINED.
    assert_eq!(active.expect(RDMA_CM_EVENT_REJECTED).status, 28);
    assert!(active.attributes(IBV_QPS_INIT).is_err());
}

#[test]
fn attributes_of_both_ends_fit_together() {
    let (listener, port) = End::listener();
    let (active, passive) = request(&listener, port);
    assert!(active.attributes(IBV_QPS_INIT).is_ok());
    assert_eq!(active.attributes(IBV_QPS_RTS).err(), Some(libc::EINVAL));
    let (rtr, mask) = passive.attributes(IBV_QPS_RTR).expect("a peer");
    assert_ne!(mask & IBV_QP_RQ_PSN, 0);
    assert_eq!((rtr.dest_qp_num, rtr.max_dest_rd_atomic), (QPN, 2));
    // The RoCE v2 address of the IPv4 loopback address, with 4096 bytes of payload.
    assert_eq!((rtr.ah_attr.grh.sgid_index, rtr.path_mtu), (3, 5));

    let mut answer = param(b"");
    // SAFETY: the identifier exists and the parameters are valid.
    assert_eq!(unsafe { rdma_accept(passive.id, &raw mut answer) }, 0);
    active.expect(RDMA_CM_EVENT_CONNECT_RESPONSE);
    for (sender, receiver) in [(&active, &passive), (&passive, &active)] {
        let (rts, mask) = sender.attributes(IBV_QPS_RTS).expect("a peer");
        assert_ne!(mask & IBV_QP_SQ_PSN, 0);
        assert_ne!(mask & IBV_QP_TIMEOUT, 0);
        let (rtr, _) = receiver.attributes(IBV_QPS_RTR).expect("a peer");
        assert_eq!(rts.sq_psn, rtr.rq_psn);
    }
    // SAFETY: the identifier exists.
    assert_eq!(unsafe { rdma_establish(active.id) }, 0);
    listener.expect(RDMA_CM_EVENT_ESTABLISHED);
    drop(active);
    listener.expect(RDMA_CM_EVENT_DISCONNECTED);
}
