//! Completion queues.

use super::objects::Kind;
use super::{Call, Udata, event};
use crate::abi::core::{ExModifyCq, ResizeCq, ResizeCqResp};
use crate::abi::ioctl::cq;
use crate::errno::{Errno, Result};
use crate::nic::CreateCq;

/// Attribute with the descriptor of the asynchronous events.
const EVENT_FD: u16 = 7;
/// Flags of the creation: timestamps, and no check for an overrun.
const KNOWN_FLAGS: u32 = 3;

impl Call<'_> {
    pub(super) fn create_cq(&mut self) -> Result<()> {
        self.cx.check_adapter()?;
        let comp_channel = match self.attrs.optional_fd(cq::COMP_CHANNEL)? {
            Some(fd) => Some(self.descriptors.channel(fd).ok_or(Errno::EBADF)?),
            None => None,
        };
        if self.attrs.u32(cq::COMP_VECTOR)? >= self.nic.comp_vectors()
            || self.attrs.u32_or_zero(cq::FLAGS)? & !KNOWN_FLAGS != 0
        {
            return Err(Errno::EINVAL);
        }
        let events = self.event_target(cq::USER_HANDLE, EVENT_FD)?;
        let create = CreateCq {
            entries: self.attrs.u32(cq::CQE)?,
            comp_channel,
            events,
        };
        let number = self.nic.create_cq(&create, &Udata(&self.attrs))?;
        self.keep_target(event::CQ, number, comp_channel, events);
        let handle = self.file.objects.insert(Kind::Cq(number), &[]);
        self.attrs.write_handle(cq::HANDLE, u64::from(handle))?;
        self.attrs.write(cq::RESP_CQE, &create.entries)
    }

    pub(super) fn resize_cq(&mut self) -> Result<()> {
        let command: ResizeCq = self.command()?;
        let number = self.file.objects.cq(command.cq_handle)?;
        let udata = Udata(&self.attrs);
        let cqe = self.nic.resize_cq(self.cx, number, command.cqe, &udata)?;
        self.respond(&ResizeCqResp { cqe, reserved: 0 })
    }

    /// Accepts moderation, which only changes when events are sent.
    pub(super) fn modify_cq(&mut self) -> Result<()> {
        let command: ExModifyCq = self.command()?;
        self.file.objects.cq(command.cq_handle)?;
        if command.attr_mask & !1 != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        Ok(())
    }

    pub(super) fn destroy_cq(&mut self) -> Result<()> {
        let handle = self.attrs.handle(cq::HANDLE)?;
        let number = self.file.objects.cq(handle)?;
        self.file.objects.remove(handle)?;
        let all = self.nic.destroy_cq(number);
        let (completion, asynchronous) = self.read_events(event::CQ, number, &all);
        self.forget_target(event::CQ, number);
        self.attrs
            .write(cq::DESTROY_RESP, &[completion, asynchronous])
    }
}
