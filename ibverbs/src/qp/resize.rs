//! Queues of another length, of a queue pair that exists.

use rdma_sys::{IBV_QP_CAP, ibv_qp_cap};

use super::pair::QueuePair;
use crate::device::DeviceCapFlags;
use crate::error::{Error, Result};
use crate::in_flight::Ring;
use crate::kind::ErrorKind;
use crate::transport::SendTransport;

impl<T: SendTransport> QueuePair<T> {
    /// The sizes to ask for, if the queue pair can get others now.
    pub(crate) fn check_resize(&self, [sends, recvs]: [Option<u32>; 2]) -> Result<ibv_qp_cap> {
        let refuse = |kind, why: &str, hint: &'static str| {
            let what = format!("{}: queues of another length {why}", self.describe());
            Err(Error::new(kind, "ibv_modify_qp", what).with_hint(hint))
        };
        let caps = self.caps();
        if !self
            .pd()
            .context()
            .query_device()?
            .device_cap_flags
            .contains(DeviceCapFlags::RESIZE_MAX_WR)
        {
            let hint = "make the queue pair as large as it will have to be";
            return refuse(
                ErrorKind::Unsupported,
                "are nothing that this device can do",
                hint,
            );
        }
        if !self.is_idle() {
            return refuse(
                ErrorKind::QueueFull,
                "while requests are in flight",
                "retire all requests first",
            );
        }
        if recvs.is_some() && caps.max_recv_wr == 0 {
            return refuse(
                ErrorKind::InvalidInput,
                "for receives, of which it takes none",
                "ask for sends only",
            );
        }
        let (sends, recvs) = (
            sends.unwrap_or(caps.max_send_wr),
            recvs.unwrap_or(caps.max_recv_wr),
        );
        if sends.max(recvs) > Ring::MAX {
            return refuse(
                ErrorKind::InvalidInput,
                "than this library can tell apart",
                "ask for less",
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

    /// Makes the tables as long as the device has made the queues. Nothing is in flight.
    pub(crate) fn take_sizes(&mut self) -> Result<()> {
        let given = self.control().ask(IBV_QP_CAP)?.cap;
        let recvs = if self.caps().max_recv_wr == 0 {
            0
        } else {
            given.max_recv_wr
        };
        self.tables.sends.resize(given.max_send_wr);
        self.tables.recvs.table.resize(recvs);
        self.set_lengths(given.max_send_wr, recvs);
        Ok(())
    }
}
