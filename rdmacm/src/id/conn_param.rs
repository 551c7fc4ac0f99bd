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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_parameters_are_converted() {
        let params = ConnectParams::new()
            .private_data(b"data")
            .flow_control(true);
        let params = params.responder_resources(1).initiator_depth(2);
        let params = params.retry_count(3).rnr_retry_count(4);
        let raw = raw_params(
            &params,
            QpIdentity {
                qp_num: 5,
                has_srq: false,
            },
        );
        assert_eq!(raw.private_data, params.private_data.as_ptr().cast());
        assert_eq!(raw.private_data_len, 4);
        assert_eq!((raw.responder_resources, raw.initiator_depth), (1, 2));
        assert_eq!((raw.retry_count, raw.rnr_retry_count), (3, 4));
        assert_eq!((raw.qp_num, raw.srq, raw.flow_control), (5, 0, 1));
    }
}
