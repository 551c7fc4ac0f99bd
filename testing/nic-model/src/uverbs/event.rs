//! Event channels: their creation, and the events of destroyed objects.

use std::os::fd::IntoRawFd;

use zerocopy::IntoBytes;

use super::{Call, Core};
use crate::abi::ioctl::device;
use crate::channels;
use crate::errno::{Errno, Result};
use crate::nic::{Destroyed, EventTarget};

/// Kinds of objects that have events.
pub(super) const CQ: u8 = 0;
pub(super) const QP: u8 = 1;
pub(super) const SRQ: u8 = 2;

impl Call<'_> {
    pub(super) fn alloc_async_event(&mut self) -> Result<()> {
        let (channel, fd) = self.cx.channels.create(channels::ASYNC)?;
        let fd = fd.into_raw_fd();
        self.descriptors.add_channel(fd, channel)?;
        // The open device keeps the first one for objects that name no other.
        if self.file.async_channel.is_none() {
            self.cx.channels.hold(channel);
            self.file.async_channel = Some(channel);
        }
        self.attrs
            .write_handle(0, u64::try_from(fd).map_err(|_| Errno::EMFILE)?)
    }

    pub(super) fn create_comp_channel(&mut self) -> Result<()> {
        let (channel, fd) = self.cx.channels.create(channels::COMPLETION)?;
        let fd = fd.into_raw_fd();
        self.descriptors.add_channel(fd, channel)?;
        self.attrs.write(device::CORE_OUT, fd.as_bytes())
    }

    /// Returns the target of the events of a new object. `user_handle` and `event_fd` are
    /// attributes of the call.
    pub(super) fn event_target(&self, user_handle: u16, event_fd: u16) -> Result<EventTarget> {
        let channel = match self.attrs.optional_fd(event_fd)? {
            Some(fd) => Some(self.descriptors.channel(fd).ok_or(Errno::EBADF)?),
            None => self.file.async_channel,
        };
        Ok(EventTarget {
            channel,
            user_handle: self.attrs.u64(user_handle)?,
        })
    }

    /// Remembers where the events of a new object go, and keeps these channels.
    pub(super) fn keep_target(
        &mut self,
        object: u8,
        number: u32,
        comp_channel: Option<u32>,
        target: EventTarget,
    ) {
        for channel in [comp_channel, target.channel].into_iter().flatten() {
            self.cx.channels.hold(channel);
        }
        self.core
            .targets
            .insert((object, number), (comp_channel, target));
    }

    /// Removes the unread events of a destroyed object. Returns how many of `all` were read.
    pub(super) fn read_events(&mut self, object: u8, number: u32, all: &Destroyed) -> (u32, u32) {
        let Some((comp_channel, target)) = self.core.targets.get(&(object, number)).copied() else {
            return (0, 0);
        };
        let mut unread = |channel: Option<u32>| {
            channel.map_or(0, |channel| {
                self.cx.channels.forget(channel, target.user_handle)
            })
        };
        (
            all.completion.saturating_sub(unread(comp_channel)),
            all.asynchronous.saturating_sub(unread(target.channel)),
        )
    }

    /// Releases the channels of a destroyed object.
    pub(super) fn forget_target(&mut self, object: u8, number: u32) {
        let Core { targets, .. } = self.core;
        if let Some((comp_channel, target)) = targets.remove(&(object, number)) {
            for channel in [comp_channel, target.channel].into_iter().flatten() {
                self.cx.channels.forget(channel, target.user_handle);
                self.cx.channels.release(channel);
            }
        }
    }
}
