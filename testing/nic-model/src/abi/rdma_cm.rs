//! The interface of `/dev/infiniband/rdma_cm` (`rdma/rdma_user_cm.h`, `rdma/ib_user_sa.h`).

use crate::abi::core::AhAttr;

/// Numbers of the commands.
pub(crate) mod cmd {
    pub(crate) const CREATE_ID: u32 = 0;
    pub(crate) const DESTROY_ID: u32 = 1;
    pub(crate) const BIND_IP: u32 = 2;
    pub(crate) const RESOLVE_IP: u32 = 3;
    pub(crate) const RESOLVE_ROUTE: u32 = 4;
    pub(crate) const QUERY_ROUTE: u32 = 5;
    pub(crate) const CONNECT: u32 = 6;
    pub(crate) const LISTEN: u32 = 7;
    pub(crate) const ACCEPT: u32 = 8;
    pub(crate) const REJECT: u32 = 9;
    pub(crate) const DISCONNECT: u32 = 10;
    pub(crate) const INIT_QP_ATTR: u32 = 11;
    pub(crate) const GET_EVENT: u32 = 12;
    pub(crate) const GET_OPTION: u32 = 13;
    pub(crate) const SET_OPTION: u32 = 14;
    pub(crate) const NOTIFY: u32 = 15;
    pub(crate) const JOIN_IP_MCAST: u32 = 16;
    pub(crate) const LEAVE_MCAST: u32 = 17;
    pub(crate) const MIGRATE_ID: u32 = 18;
    pub(crate) const QUERY: u32 = 19;
    pub(crate) const BIND: u32 = 20;
    pub(crate) const RESOLVE_ADDR: u32 = 21;
    pub(crate) const JOIN_MCAST: u32 = 22;
    pub(crate) const RESOLVE_IB_SERVICE: u32 = 23;
    pub(crate) const WRITE_CM_EVENT: u32 = 24;
}

/// Port spaces.
pub(crate) mod port_space {
    pub(crate) const IPOIB: u16 = 0x0002;
    pub(crate) const IB: u16 = 0x013f;
    pub(crate) const TCP: u16 = 0x0106;
    pub(crate) const UDP: u16 = 0x0111;
}

/// Events (`enum rdma_cm_event_type`).
pub(crate) mod event {
    pub(crate) const ADDR_RESOLVED: u32 = 0;
    pub(crate) const ADDR_ERROR: u32 = 1;
    pub(crate) const ROUTE_RESOLVED: u32 = 2;
    pub(crate) const CONNECT_REQUEST: u32 = 4;
    pub(crate) const CONNECT_RESPONSE: u32 = 5;
    pub(crate) const UNREACHABLE: u32 = 7;
    pub(crate) const REJECTED: u32 = 8;
    pub(crate) const ESTABLISHED: u32 = 9;
    pub(crate) const DISCONNECTED: u32 = 10;
    pub(crate) const TIMEWAIT_EXIT: u32 = 15;
    pub(crate) const USER: u32 = 18;
    pub(crate) const INTERNAL: u32 = 19;
}

/// Options of the command `QUERY`.
pub(crate) mod query {
    pub(crate) const ADDR: u32 = 0;
    pub(crate) const PATH: u32 = 1;
    pub(crate) const GID: u32 = 2;
}

/// Levels and names of options.
pub(crate) mod option {
    pub(crate) const LEVEL_ID: u32 = 0;
    pub(crate) const LEVEL_IB: u32 = 1;
    pub(crate) const ID_TOS: u32 = 0;
    pub(crate) const ID_REUSEADDR: u32 = 1;
    pub(crate) const ID_AFONLY: u32 = 2;
    pub(crate) const ID_ACK_TIMEOUT: u32 = 3;
    pub(crate) const IB_PATH: u32 = 1;
}

/// Flags of a path that is used in both directions and for management:
/// `IB_PATH_GMP | IB_PATH_PRIMARY | IB_PATH_BIDIRECTIONAL`.
pub(crate) const PATH_FLAGS: u32 = 1 | 1 << 1 | 1 << 3 | 1 << 5;

/// Size of `struct sockaddr_in6`.
pub(crate) const SOCKADDR_IN6: usize = 28;
/// Size of `struct sockaddr_storage`.
pub(crate) const STORAGE: usize = 128;

abi! {
    struct Header {
        cmd: u32,
        input: u16,
        output: u16,
    }

    struct CreateId {
        uid: u64,
        response: u64,
        ps: u16,
        qp_type: u8,
        reserved: [u8; 5],
    }

    /// `rdma_ucm_destroy_id`, and `rdma_ucm_query`, whose last field is the option.
    struct OnId {
        response: u64,
        id: u32,
        option: u32,
    }

    struct Bind {
        id: u32,
        addr_size: u16,
        reserved: u16,
        addr: [u8; STORAGE],
    }

    struct ResolveAddr {
        id: u32,
        timeout_ms: u32,
        src_size: u16,
        dst_size: u16,
        reserved: u32,
        src_addr: [u8; STORAGE],
        dst_addr: [u8; STORAGE],
    }

    /// Commands with an identifier and a number: `RESOLVE_ROUTE`, `LISTEN`, `NOTIFY`, and
    /// `DISCONNECT`, which has no number.
    struct WithNumber {
        id: u32,
        number: u32,
    }

    struct QueryAddrResp {
        node_guid: [u8; 8],
        port_num: u8,
        reserved: u8,
        pkey: u16,
        src_size: u16,
        dst_size: u16,
        src_addr: [u8; STORAGE],
        dst_addr: [u8; STORAGE],
        ibdev_index: u32,
        reserved1: u32,
    }

    /// A path record as the subnet administration sends it.
    struct PathData {
        flags: u32,
        reserved: u32,
        service_id: [u8; 8],
        dgid: [u8; 16],
        sgid: [u8; 16],
        dlid: [u8; 2],
        slid: [u8; 2],
        flowlabel_hoplimit: [u8; 4],
        tclass: u8,
        reversible_numpath: u8,
        pkey: [u8; 2],
        qosclass_sl: [u8; 2],
        mtu: u8,
        rate: u8,
        packetlifetime: u8,
        preference: u8,
        reserved1: [u8; 6],
    }

    struct QueryPathResp {
        num_paths: u32,
        reserved: u32,
        path_data: [PathData; 1],
    }

    struct ConnParam {
        qp_num: u32,
        qkey: u32,
        private_data: [u8; 256],
        private_data_len: u8,
        srq: u8,
        responder_resources: u8,
        initiator_depth: u8,
        flow_control: u8,
        retry_count: u8,
        rnr_retry_count: u8,
        valid: u8,
    }

    struct Ece {
        vendor_id: u32,
        attr_mod: u32,
    }

    struct Connect {
        conn_param: ConnParam,
        id: u32,
        reserved: u32,
        ece: Ece,
    }

    struct Accept {
        uid: u64,
        conn_param: ConnParam,
        id: u32,
        reserved: u32,
        ece: Ece,
    }

    struct Reject {
        id: u32,
        private_data_len: u8,
        reason: u8,
        reserved: [u8; 2],
        private_data: [u8; 256],
    }

    struct InitQpAttr {
        response: u64,
        id: u32,
        qp_state: u32,
    }

    /// `ib_uverbs_qp_attr`.
    struct QpAttr {
        qp_attr_mask: u32,
        qp_state: u32,
        cur_qp_state: u32,
        path_mtu: u32,
        path_mig_state: u32,
        qkey: u32,
        rq_psn: u32,
        sq_psn: u32,
        dest_qp_num: u32,
        qp_access_flags: u32,
        ah_attr: AhAttr,
        alt_ah_attr: AhAttr,
        cap: [u32; 5],
        pkey_index: u16,
        alt_pkey_index: u16,
        en_sqd_async_notify: u8,
        sq_draining: u8,
        max_rd_atomic: u8,
        max_dest_rd_atomic: u8,
        min_rnr_timer: u8,
        port_num: u8,
        timeout: u8,
        retry_cnt: u8,
        rnr_retry: u8,
        alt_port_num: u8,
        alt_timeout: u8,
        reserved: [u8; 5],
    }

    struct EventResp {
        uid: u64,
        id: u32,
        event: u32,
        status: i32,
        conn: ConnParam,
        /// The part of `ud` that is longer than `conn`.
        rest: [u8; 32],
        reserved: u32,
        ece: Ece,
    }

    struct SetOption {
        optval: u64,
        id: u32,
        level: u32,
        optname: u32,
        optlen: u32,
    }

    struct WriteCmEvent {
        id: u32,
        reserved: u32,
        event: u32,
        status: u32,
        arg: [u32; 2],
    }

    struct MigrateId {
        response: u64,
        id: u32,
        fd: i32,
    }
}
