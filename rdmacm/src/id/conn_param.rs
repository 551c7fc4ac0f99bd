//! Conversion of connection parameters to `struct rdma_conn_param`.

#![allow(unsafe_code)]

use ibverbs::{DuplexTransport, QueuePair, Result};
use rdma_sys::rdma_conn_param;

use crate::params::ConnectParams;

/// Properties of a queue pair that are sent to the peer in handshake messages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QpIdentity {
    pub(crate) qp_num: u32,
    pub(crate) has_srq: bool,
}

impl QpIdentity {
    /// Returns them, or an error if a scope has destroyed the queue pair.
    pub(crate) fn new<T: DuplexTransport>(qp: &QueuePair<T>) -> Result<Self> {
        let raw = qp.as_raw()?;
        // SAFETY: the queue pair is alive, and `srq` is constant after creation.
        let has_srq = unsafe { !(*raw.as_ptr()).srq.is_null() };
        Ok(Self {
            qp_num: qp.qp_num().0,
            has_srq,
        })
    }
}

/// Converts to the structure of C. The caller has checked the length of the private data.
pub(crate) fn raw_params(params: &ConnectParams<'_>, qp: QpIdentity) -> rdma_conn_param {
    rdma_conn_param {
        private_data: params.private_data.as_ptr().cast(),
        private_data_len: u8::try_from(params.private_data.len()).unwrap_or(u8::MAX),
        responder_resources: params.responder_resources,
        initiator_depth: params.initiator_depth,
        flow_control: params.flow_control.into(),
        retry_count: params.retry_count,
        rnr_retry_count: params.rnr_retry_count,
        srq: qp.has_srq.into(),
        qp_num: qp.qp_num,
    }
}
