//! Shared receive queues.

use super::objects::Kind;
use super::{Call, Udata, event};
use crate::abi::core::{ModifySrq, QuerySrq, QuerySrqResp};
use crate::abi::ioctl::srq;
use crate::errno::{Errno, Result};
use crate::nic::CreateSrq;

/// Attribute with the descriptor of the asynchronous events.
const EVENT_FD: u16 = 10;
/// Types of shared receive queues.
const BASIC: u64 = 0;
const XRC: u64 = 1;
/// Bits of the mask of a modification.
const MAX_WR: u32 = 1;
const LIMIT: u32 = 2;

impl Call<'_> {
    pub(super) fn create_srq(&mut self) -> Result<()> {
        self.cx.check_adapter()?;
        let attrs = &self.attrs;
        let objects = &self.file.objects;
        let pd_handle = attrs.handle(srq::PD_HANDLE)?;
        let mut parents = vec![pd_handle];
        let xrc = match attrs.u64(srq::TYPE)? {
            BASIC => None,
            XRC => {
                let xrcd = attrs.handle(srq::XRCD_HANDLE)?;
                let cq = attrs.handle(srq::CQ_HANDLE)?;
                parents.extend([xrcd, cq]);
                Some((objects.xrcd(xrcd)?, objects.cq(cq)?))
            }
            _ => return Err(Errno::EOPNOTSUPP),
        };
        let create = CreateSrq {
            pd: objects.pd(pd_handle)?,
            xrc,
            max_wr: attrs.u32(srq::MAX_WR)?,
            max_sge: attrs.u32(srq::MAX_SGE)?,
            limit: attrs.u32(srq::LIMIT)?,
            events: self.event_target(srq::USER_HANDLE, EVENT_FD)?,
        };
        let number = self.nic.create_srq(&create, &Udata(&self.attrs))?;
        self.keep_target(event::SRQ, number, None, create.events);
        let handle = self.file.objects.insert(Kind::Srq(number), &parents);
        self.attrs.write_handle(srq::HANDLE, u64::from(handle))?;
        self.attrs.write(srq::RESP_MAX_WR, &create.max_wr)?;
        self.attrs.write(srq::RESP_MAX_SGE, &create.max_sge)?;
        self.attrs.write(srq::RESP_SRQ_NUM, &number)
    }

    pub(super) fn modify_srq(&mut self) -> Result<()> {
        let command: ModifySrq = self.command()?;
        let number = self.file.objects.srq(command.srq_handle)?;
        // mlx5 cannot change the size.
        if command.attr_mask & MAX_WR != 0 {
            return Err(Errno::EINVAL);
        }
        if command.attr_mask & LIMIT != 0 {
            self.nic.modify_srq(number, command.srq_limit)?;
        }
        Ok(())
    }

    pub(super) fn query_srq(&mut self) -> Result<()> {
        self.cx.check_adapter()?;
        let command: QuerySrq = self.command()?;
        let number = self.file.objects.srq(command.srq_handle)?;
        let attr = self.nic.query_srq(number)?;
        self.respond(&QuerySrqResp {
            max_wr: attr.max_wr,
            max_sge: attr.max_sge,
            srq_limit: attr.limit,
            reserved: 0,
        })
    }

    pub(super) fn destroy_srq(&mut self) -> Result<()> {
        let handle = self.attrs.handle(srq::HANDLE)?;
        let number = self.file.objects.srq(handle)?;
        self.file.objects.remove(handle)?;
        let all = self.nic.destroy_srq(number);
        let (_, asynchronous) = self.read_events(event::SRQ, number, &all);
        self.forget_target(event::SRQ, number);
        self.attrs.write(srq::DESTROY_RESP, &asynchronous)
    }
}
