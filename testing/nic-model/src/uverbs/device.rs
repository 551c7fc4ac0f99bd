//! Methods of the device: the context, the port and its addresses.

use zerocopy::IntoBytes;

use super::Call;
use crate::abi::core::GidEntry;
use crate::abi::ioctl::device;
use crate::errno::{Errno, Result};

impl Call<'_> {
    pub(super) fn get_context(&mut self) -> Result<()> {
        if self.file.context {
            return Err(Errno::EINVAL);
        }
        let udata = super::Udata(&self.attrs);
        self.nic.get_context(&udata)?;
        self.file.context = true;
        self.write_context()
    }

    pub(super) fn query_context(&mut self) -> Result<()> {
        self.nic.query_context(&self.attrs)?;
        self.write_context()
    }

    fn write_context(&self) -> Result<()> {
        // The kernel accepts optional access flags (`IB_UVERBS_CORE_SUPPORT_OPTIONAL_MR_ACCESS`).
        let core_support = 1_u64;
        self.attrs
            .write(device::CONTEXT_NUM_COMP_VECTORS, &self.nic.comp_vectors())?;
        self.attrs
            .write(device::CONTEXT_CORE_SUPPORT, &core_support)
    }

    pub(super) fn query_port(&mut self) -> Result<()> {
        self.cx.check_adapter()?;
        let port: u8 = self
            .attrs
            .read_whole(device::QUERY_PORT_PORT_NUM, Errno::EINVAL)?;
        if port != 1 {
            return Err(Errno::EINVAL);
        }
        let port = self.nic.query_port(self.cx);
        self.attrs.write(device::QUERY_PORT_RESP, &port)
    }

    /// Reports the speed of the link in units of 100 Mb/s.
    pub(super) fn query_port_speed(&mut self) -> Result<()> {
        self.cx.check_adapter()?;
        let port = self.attrs.u64(device::PORT_SPEED_PORT_NUM)?;
        if port != 1 {
            return Err(Errno::EINVAL);
        }
        self.attrs
            .write(device::PORT_SPEED_RESP, &crate::nic::LINK_SPEED)
    }

    pub(super) fn query_gid_entry(&mut self) -> Result<()> {
        let port = self.attrs.u32(device::GID_ENTRY_PORT)?;
        let index = self.attrs.u32(device::GID_ENTRY_GID_INDEX)?;
        if port != 1 {
            return Err(Errno::EINVAL);
        }
        let length = self.nic.query_port(self.cx).legacy_resp.gid_tbl_len;
        if index >= length {
            return Err(Errno::EINVAL);
        }
        let entry = self
            .cx
            .gids
            .iter()
            .find(|entry| entry.gid_index == index)
            .ok_or(Errno::ENODATA)?;
        self.attrs.write(device::GID_ENTRY_RESP_ENTRY, entry)
    }

    pub(super) fn query_gid_table(&mut self) -> Result<()> {
        let size = usize::try_from(self.attrs.u64(device::GID_TABLE_ENTRY_SIZE)?)
            .map_err(|_| Errno::EINVAL)?;
        if self.attrs.u32_or_zero(device::GID_TABLE_FLAGS)? != 0 || size < size_of::<GidEntry>() {
            return Err(Errno::EINVAL);
        }
        let room = self.attrs.length(device::GID_TABLE_RESP_ENTRIES) / size;
        if self.cx.gids.len() > room {
            return Err(Errno::EINVAL);
        }
        let mut table = Vec::new();
        for entry in &self.cx.gids {
            table.extend_from_slice(entry.as_bytes());
            table.resize(table.len().next_multiple_of(size), 0);
        }
        self.attrs
            .write(device::GID_TABLE_RESP_ENTRIES, table.as_slice())?;
        self.attrs.write(
            device::GID_TABLE_RESP_NUM_ENTRIES,
            &(self.cx.gids.len() as u64),
        )
    }
}
