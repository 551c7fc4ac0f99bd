//! Resizing the queues of an existing queue pair.

use rdma_sys::{IBV_QP_CAP, ibv_qp_cap};

use super::pair::QueuePair;
use crate::device::DeviceCapFlags;
use crate::error::{Error, ErrorKind, Result};
use crate::in_flight::Ring;
use crate::transport::SendTransport;

impl<T: SendTransport> QueuePair<T> {
    /// Returns the sizes to request, if the queue pair can be resized now.
    pub(crate) fn check_resize(&self, [sends, recvs]: [Option<u32>; 2]) -> Result<ibv_qp_cap> {
        let refuse = |kind, why: &str, help: &'static str| {
            let what = format!("cannot resize the queues of {}: {why}", self.describe());
            Err(Error::new(kind, "ibv_modify_qp", what).with_help(help))
        };
        let caps = self.caps();
        if !self
            .pd()
            .context()
            .query_device()?
            .device_cap_flags
            .contains(DeviceCapFlags::RESIZE_MAX_WR)
        {
            let help = "create the queue pair with its final size";
            return refuse(
                ErrorKind::Unsupported,
                "the device does not support it",
                help,
            );
        }
        if !self.is_idle() {
            return refuse(
                ErrorKind::Busy,
                "requests are in flight",
                "retire all requests first",
            );
        }
        if recvs.is_some() && caps.max_recv_wr == 0 {
            return refuse(
                ErrorKind::InvalidInput,
                "it has no receive queue",
                "resize the send queue only",
            );
        }
        let (sends, recvs) = (
            sends.unwrap_or(caps.max_send_wr),
            recvs.unwrap_or(caps.max_recv_wr),
        );
        if sends.max(recvs) > Ring::MAX {
            return refuse(
                ErrorKind::InvalidInput,
                "the new size exceeds the limit of this library",
                "request a smaller size",
            );
        }
        Ok(ibv_qp_cap {
            max_send_wr: sends,
            max_recv_wr: recvs,
            max_send_sge: caps.max_send_sge,
            max_recv_sge: caps.max_recv_sge,
            max_inline_data: caps.max_inline_data,
        })
    }

    /// Resizes the tables to the sizes that the device granted. No request is in flight.
    pub(crate) fn take_sizes(&mut self) -> Result<()> {
        let granted = self.handle().query_raw(IBV_QP_CAP)?.cap;
        let recvs = if self.caps().max_recv_wr == 0 {
            0
        } else {
            granted.max_recv_wr
        };
        self.tables.sends.resize(granted.max_send_wr);
        self.tables.recvs.table.resize(recvs);
        self.set_queue_sizes(granted.max_send_wr, recvs);
        Ok(())
    }
}
