//! A queue pair as the verbs that ask and change it see it, whatever it posts.

#![allow(unsafe_code)]

use std::ptr::NonNull;

use rdma_sys::{IBV_QP_STATE, ibv_modify_qp, ibv_qp, ibv_qp_attr, ibv_qp_init_attr, ibv_query_qp};

use super::state::QpState;
use super::transitions;
use crate::convert::zero_or_errno;
use crate::cq::standing;
use crate::device::{Context, TransportType};
use crate::error::{Error, Result};
use crate::numbers::Qpn;
use crate::transport::QpType;

/// The handle of a live queue pair, its type and its device.
#[derive(Clone, Copy)]
pub(crate) struct Control<'qp> {
    raw: NonNull<ibv_qp>,
    pub(crate) kind: QpType,
    pub(crate) context: &'qp Context,
}

impl<'qp> Control<'qp> {
    /// # Safety
    /// The queue pair is of this context, and alive while this is used.
    pub(crate) unsafe fn new(raw: NonNull<ibv_qp>, kind: QpType, context: &'qp Context) -> Self {
        Self { raw, kind, context }
    }

    pub(crate) fn qp_num(self) -> Qpn {
        // SAFETY: the queue pair is alive; its number never changes.
        Qpn(unsafe { (*self.raw.as_ptr()).qp_num })
    }

    pub(crate) fn describe(self) -> String {
        format!("{} queue pair of {}", self.kind, self.context.device_name())
    }

    /// Whether its states and attributes are those of the InfiniBand specification.
    pub(crate) fn follows_the_table(self) -> bool {
        self.context.device().transport() != TransportType::IWARP
    }

    /// What the device says of the attributes in `mask`.
    pub(crate) fn ask(self, mask: u32) -> Result<ibv_qp_attr> {
        let mut attr = ibv_qp_attr::default();
        let mut init = ibv_qp_init_attr::default();
        // SAFETY: the queue pair is alive and both structures are valid for writing.
        let returned =
            unsafe { ibv_query_qp(self.raw.as_ptr(), &raw mut attr, mask as i32, &raw mut init) };
        zero_or_errno("ibv_query_qp", || self.describe(), returned)?;
        Ok(attr)
    }

    pub(crate) fn state(self) -> Result<QpState> {
        Ok(QpState(self.ask(IBV_QP_STATE)?.qp_state))
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

    /// A step, which says what it lacks or does not take when the driver refuses it.
    pub(crate) fn modify_raw(self, state: &str, attr: &mut ibv_qp_attr, mask: u32) -> Result<()> {
        if mask & IBV_QP_STATE != 0 && attr.qp_state == QpState::RESET.0 {
            standing::refuse_inside("ibv_modify_qp", || {
                format!("{} to {state}", self.describe())
            })?;
        }
        crate::trace::stepped(self.qp_num().0, state, mask);
        // SAFETY: the queue pair is alive; the attributes are valid during the call.
        let returned = unsafe { ibv_modify_qp(self.raw.as_ptr(), attr, mask as i32) };
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

    /// Why a step failed that this crate composed: most often the queue pair is in another state
    /// than the step starts from.
    fn explain(self, error: Error, to: QpState, mask: u32) -> Error {
        if !self.follows_the_table() {
            return error;
        }
        let fault = self
            .state()
            .ok()
            .and_then(|from| transitions::fault(self.kind, from, to, mask));
        match fault {
            Some(fault) => error.with_hint(fault),
            None => error,
        }
    }
}
