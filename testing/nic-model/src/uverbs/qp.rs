//! Queue pairs.

use super::objects::Kind;
use super::{Call, Udata, event};
use crate::abi::core::{CreateQpResp, ModifyQp, OpenQp, QpCap, QueryQp, cmd, qp_type};
use crate::abi::ioctl::{device, qp};
use crate::errno::{Errno, Result};
use crate::nic::CreateQp;
use crate::qp_state::{self, mask};

/// Attribute with the descriptor of the asynchronous events.
const EVENT_FD: u16 = 12;

impl Call<'_> {
    pub(super) fn create_qp(&mut self) -> Result<()> {
        self.cx.check_adapter()?;
        let attrs = &self.attrs;
        let kind = u8::try_from(attrs.u64(qp::TYPE)?).map_err(|_| Errno::EINVAL)?;
        // The requested and the granted capacities are the same memory of the provider.
        let cap: QpCap = attrs.read_whole(qp::CAP, Errno::EINVAL)?;
        let target = kind == qp_type::XRC_TGT;
        let mut parents = Vec::new();
        let objects = &self.file.objects;
        let mut parent = |id: u16| -> Result<Option<u32>> {
            let handle = attrs.optional_handle(id)?;
            parents.extend(handle);
            Ok(handle)
        };
        let pd = parent(qp::PD_HANDLE)?.map(|h| objects.pd(h)).transpose()?;
        let xrcd = parent(qp::XRCD_HANDLE)?
            .map(|h| objects.xrcd(h))
            .transpose()?;
        let send_cq = parent(qp::SEND_CQ_HANDLE)?
            .map(|h| objects.cq(h))
            .transpose()?;
        let recv_cq = parent(qp::RECV_CQ_HANDLE)?
            .map(|h| objects.cq(h))
            .transpose()?;
        let srq = parent(qp::SRQ_HANDLE)?
            .map(|h| objects.srq(h))
            .transpose()?;
        if target != xrcd.is_some() || target == pd.is_some() {
            return Err(Errno::EINVAL);
        }
        let create = CreateQp {
            kind,
            pd,
            xrcd,
            send_cq,
            recv_cq,
            srq,
            cap,
            flags: attrs.u32_or_zero(qp::FLAGS)?,
            events: self.event_target(qp::USER_HANDLE, EVENT_FD)?,
        };
        if attrs.has(qp::SOURCE_QPN) {
            return Err(Errno::EOPNOTSUPP);
        }
        let (number, qpn, granted) = self.nic.create_qp(self.cx, &create, &Udata(&self.attrs))?;
        self.keep_target(event::QP, number, None, create.events);
        let handle = self
            .file
            .objects
            .insert(Kind::Qp { number, kind }, &parents);
        self.attrs.write_handle(qp::HANDLE, u64::from(handle))?;
        self.attrs.write(qp::RESP_CAP, &granted)?;
        self.attrs.write(qp::RESP_QP_NUM, &qpn)
    }

    /// Opens the receiving queue pair of an XRC domain a second time.
    pub(super) fn open_qp(&mut self) -> Result<()> {
        let command: OpenQp = self.command()?;
        self.file.objects.xrcd(command.pd_handle)?;
        let index = self
            .cx
            .network
            .local_index(command.qpn)
            .ok_or(Errno::EINVAL)?;
        let owned = self.file.objects.kinds().any(
            |kind| matches!(kind, Kind::Qp { number, kind: qp_type::XRC_TGT } if number == index),
        );
        if command.qp_type != qp_type::XRC_TGT || !owned {
            return Err(Errno::EINVAL);
        }
        let qp_handle = self
            .file
            .objects
            .insert(Kind::OpenedQp(index), &[command.pd_handle]);
        self.respond(&CreateQpResp {
            qp_handle,
            qpn: command.qpn,
            ..CreateQpResp::default()
        })
    }

    pub(super) fn modify_qp(&mut self) -> Result<()> {
        let command: ModifyQp = self.command()?;
        let (number, kind) = self.file.objects.qp(command.qp_handle)?;
        self.check_modification(&command, number, kind)?;
        let stops = matches!(command.qp_state, qp_state::RESET | qp_state::ERR);
        if command.attr_mask & mask::STATE == 0 || !stops {
            self.cx.check_adapter()?;
        }
        self.nic
            .modify_qp(self.cx, number, &command, &Udata(&self.attrs))?;
        if self.attrs.u32(device::WRITE_CMD)? & cmd::EX != 0 {
            // `comp_mask` and `response_length`.
            self.respond(&[0_u32, 8])?;
        }
        Ok(())
    }

    fn check_modification(&self, command: &ModifyQp, number: u32, kind: u8) -> Result<()> {
        let attributes = command.attr_mask;
        let has = |bits: u32| attributes & bits != 0;
        if attributes & !mask::ALL != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        if (has(mask::PORT) && command.port_num != 1)
            || (has(mask::ALT_PATH) && command.alt_port_num != 1)
            || (has(mask::CUR_STATE) && command.cur_qp_state > qp_state::ERR)
            || (has(mask::STATE) && command.qp_state > qp_state::ERR)
            || (has(mask::PKEY_INDEX) && command.pkey_index != 0)
            || (has(mask::ALT_PATH) && command.alt_pkey_index != 0)
        {
            return Err(Errno::EINVAL);
        }
        if has(mask::AV) {
            let dest = &command.dest;
            if dest.port_num != 1 {
                return Err(Errno::EINVAL);
            }
            self.check_gid_index(dest.is_global, dest.sgid_index)?;
        }
        // The driver checks its own types.
        if kind == qp_type::DRIVER {
            return Ok(());
        }
        let now = self.nic.qp_state(number);
        let current = if has(mask::CUR_STATE) {
            command.cur_qp_state
        } else {
            now
        };
        let next = if has(mask::STATE) {
            command.qp_state
        } else {
            current
        };
        if !qp_state::allowed(current, next, kind, attributes) {
            return Err(Errno::EINVAL);
        }
        Ok(())
    }

    pub(super) fn query_qp(&mut self) -> Result<()> {
        self.cx.check_adapter()?;
        let command: QueryQp = self.command()?;
        let (number, _) = self.file.objects.qp(command.qp_handle)?;
        let response = self.nic.query_qp(number, command.attr_mask)?;
        self.respond(&response)
    }

    pub(super) fn destroy_qp(&mut self) -> Result<()> {
        let handle = self.attrs.handle(qp::HANDLE)?;
        if matches!(self.file.objects.get(handle)?, Kind::OpenedQp(_)) {
            self.file.objects.remove(handle)?;
            return self.attrs.write(qp::DESTROY_RESP, &0_u32);
        }
        let (number, _) = self.file.objects.qp(handle)?;
        if self.nic.is_multicast_member(number) {
            return Err(Errno::EBUSY);
        }
        self.file.objects.remove(handle)?;
        let all = self.nic.destroy_qp(number);
        let (_, asynchronous) = self.read_events(event::QP, number, &all);
        self.forget_target(event::QP, number);
        self.attrs.write(qp::DESTROY_RESP, &asynchronous)
    }
}
