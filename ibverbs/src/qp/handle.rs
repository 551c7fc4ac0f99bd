//! Querying and modifying a queue pair of any type.

#![allow(unsafe_code)]

use std::ptr::NonNull;

use rdma_sys::{IBV_QP_STATE, ibv_modify_qp, ibv_qp, ibv_qp_attr, ibv_qp_init_attr, ibv_query_qp};

use super::state::QpState;
use super::transitions;
use crate::convert::zero_or_errno;
use crate::device::{Context, TransportType};
use crate::error::{Error, ErrorKind, Result};
use crate::numbers::Qpn;
use crate::transport::Transport;

/// The handle of a queue pair, its number, its type and its device.
#[derive(Clone, Copy)]
pub(crate) struct QpHandle<'qp> {
    /// `None` if a scope has destroyed the queue pair.
    raw: Option<NonNull<ibv_qp>>,
    number: Qpn,
    pub(crate) transport: Transport,
    pub(crate) context: &'qp Context,
}

impl<'qp> QpHandle<'qp> {
    /// # Safety
    /// The queue pair has this number and belongs to this context. If `raw` is a handle, it is
    /// alive for `'qp`.
    pub(crate) unsafe fn new(
        raw: Option<NonNull<ibv_qp>>,
        number: Qpn,
        transport: Transport,
        context: &'qp Context,
    ) -> Self {
        Self {
            raw,
            number,
            transport,
            context,
        }
    }

    /// Returns the number of a queue pair, which never changes.
    ///
    /// # Safety
    /// The queue pair is alive.
    pub(crate) unsafe fn number(raw: NonNull<ibv_qp>) -> Qpn {
        // SAFETY: guaranteed by the caller.
        Qpn(unsafe { (*raw.as_ptr()).qp_num })
    }

    pub(crate) fn qp_num(self) -> Qpn {
        self.number
    }

    /// Returns the handle of the live queue pair.
    ///
    /// # Errors
    /// [`ErrorKind::Disconnected`] if a scope has destroyed it.
    pub(crate) fn live(self, verb: &'static str) -> Result<NonNull<ibv_qp>> {
        self.raw.ok_or_else(|| {
            let what = format!("a scope has destroyed the {}", self.describe());
            Error::new(ErrorKind::Disconnected, verb, what).with_help("connect a new one")
        })
    }

    pub(crate) fn describe(self) -> String {
        format!(
            "{} queue pair on {}",
            self.transport,
            self.context.device_name()
        )
    }

    /// Returns `true` if its states and attributes are those of the IBTA specification.
    pub(crate) fn follows_ibta_states(self) -> bool {
        self.context.device().transport() != TransportType::IWARP
    }

    /// Queries the attributes in `mask`.
    pub(crate) fn query_raw(self, mask: u32) -> Result<ibv_qp_attr> {
        let raw = self.live("ibv_query_qp")?;
        // `ibv_query_qp` stores the state in the queue pair (libibverbs/verbs.c), which threads can
        // query at once.
        let _queries = self.context.lock_queries();
        let mut attr = ibv_qp_attr::default();
        let mut init = ibv_qp_init_attr::default();
        // SAFETY: the queue pair is alive and both structures are valid for writing.
        let returned =
            unsafe { ibv_query_qp(raw.as_ptr(), &raw mut attr, mask as i32, &raw mut init) };
        zero_or_errno("ibv_query_qp", || self.describe(), returned)?;
        Ok(attr)
    }

    pub(crate) fn state(self) -> Result<QpState> {
        Ok(QpState(self.query_raw(IBV_QP_STATE)?.qp_state))
    }

    pub(crate) fn to_error(self) -> Result<()> {
        self.modify_raw(
            "ERR",
            &mut ibv_qp_attr {
                qp_state: QpState::ERR.0,
                ..Default::default()
            },
            IBV_QP_STATE,
        )
    }

    /// Modifies the queue pair. If the driver fails, the error names attributes that the transition
    /// requires or does not allow.
    pub(crate) fn modify_raw(self, state: &str, attr: &mut ibv_qp_attr, mask: u32) -> Result<()> {
        let raw = self.live("ibv_modify_qp")?;
        crate::trace::stepped(self.qp_num().0, state, mask);
        // SAFETY: the queue pair is alive; the attributes are valid during the call.
        let returned = unsafe { ibv_modify_qp(raw.as_ptr(), attr, mask as i32) };
        zero_or_errno(
            "ibv_modify_qp",
            || format!("{} to {state}", self.describe()),
            returned,
        )
        .map_err(|error| {
            if mask & IBV_QP_STATE == 0 {
                error
            } else {
                self.explain(error, QpState(attr.qp_state), mask)
            }
        })
    }

    /// Adds the reason to a failed transition, usually that the queue pair is in another state.
    fn explain(self, error: Error, to: QpState, mask: u32) -> Error {
        if !self.follows_ibta_states() {
            return error;
        }
        let violation = self
            .state()
            .ok()
            .and_then(|from| transitions::violation(self.transport, from, to, mask));
        match violation {
            Some(violation) => error.with_help(violation),
            None => error,
        }
    }
}
