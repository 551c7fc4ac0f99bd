//! The calls that open and close a connection: `rdma_connect`, `rdma_accept`, `rdma_reject`,
//! `rdma_establish`, `rdma_notify` and `rdma_disconnect`.

#![allow(unsafe_code)]

use std::ffi::c_void;
use std::fmt;

use ibverbs::Result;
use ibverbs::event::EventType;
use rdma_sys::{
    rdma_accept, rdma_connect, rdma_disconnect, rdma_establish, rdma_notify, rdma_reject,
    rdma_reject_ece,
};

use super::conn_param::raw_params;
use super::{Id, QpIdentity};
use crate::convert::zero_or_last;
use crate::params::ConnectParams;

impl Id {
    /// Sends the connect request. On iWARP it blocks for the TCP handshake.
    pub(crate) fn connect(
        &self,
        params: &ConnectParams<'_>,
        qp: QpIdentity,
        detail: &dyn fmt::Display,
    ) -> Result<()> {
        if let Some(ece) = params.ece {
            self.set_local_ece(ece, detail)?;
        }
        let mut raw = raw_params(params, qp);
        // SAFETY: `self` keeps the identifier alive. The parameters and the private data are valid
        // during the call.
        let returned = unsafe { rdma_connect(self.raw.as_ptr(), &raw mut raw) };
        zero_or_last("rdma_connect", detail, returned)
    }

    pub(crate) fn accept(
        &self,
        params: &ConnectParams<'_>,
        qp: QpIdentity,
        detail: &dyn fmt::Display,
    ) -> Result<()> {
        if let Some(ece) = params.ece {
            self.set_local_ece(ece, detail)?;
        }
        let mut raw = raw_params(params, qp);
        // SAFETY: `self` keeps the identifier alive. The parameters and the private data are valid
        // during the call.
        let returned = unsafe { rdma_accept(self.raw.as_ptr(), &raw mut raw) };
        zero_or_last("rdma_accept", detail, returned)
    }

    /// Completes the handshake: tells the passive side that this side's queue pair is ready.
    pub(crate) fn establish(&self, detail: &dyn fmt::Display) -> Result<()> {
        // SAFETY: `self` keeps the identifier alive, and its `qp` is null.
        let returned = unsafe { rdma_establish(self.raw.as_ptr()) };
        zero_or_last("rdma_establish", detail, returned)
    }

    /// Forwards an event of the queue pair to the connection manager.
    pub(crate) fn notify(&self, event: EventType, detail: &dyn fmt::Display) -> Result<()> {
        // SAFETY: `self` keeps the identifier alive, and the kernel validates the event number.
        let returned = unsafe { rdma_notify(self.raw.as_ptr(), event.0) };
        zero_or_last("rdma_notify", &format_args!("{detail}: {event}"), returned)
    }

    pub(crate) fn reject(&self, private_data: &[u8], detail: &dyn fmt::Display) -> Result<()> {
        let length = u8::try_from(private_data.len()).unwrap_or(u8::MAX);
        // SAFETY: `self` keeps the identifier alive, and `private_data` has at least `length`
        // bytes.
        let returned = unsafe {
            rdma_reject(
                self.raw.as_ptr(),
                private_data.as_ptr().cast::<c_void>(),
                length,
            )
        };
        zero_or_last("rdma_reject", detail, returned)
    }

    pub(crate) fn reject_ece(&self, private_data: &[u8], detail: &dyn fmt::Display) -> Result<()> {
        let length = u8::try_from(private_data.len()).unwrap_or(u8::MAX);
        // SAFETY: `self` keeps the identifier alive, and `private_data` has at least `length`
        // bytes.
        let returned = unsafe {
            rdma_reject_ece(
                self.raw.as_ptr(),
                private_data.as_ptr().cast::<c_void>(),
                length,
            )
        };
        zero_or_last("rdma_reject_ece", detail, returned)
    }

    pub(crate) fn disconnect(&self, detail: &dyn fmt::Display) -> Result<()> {
        // SAFETY: `self` keeps the identifier alive.
        let returned = unsafe { rdma_disconnect(self.raw.as_ptr()) };
        zero_or_last("rdma_disconnect", detail, returned)
    }
}
