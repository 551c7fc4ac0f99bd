//! The older commands, which the method `INVOKE_WRITE` executes.

use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::objects::Kind;
use super::{Call, Udata};
use crate::abi::core::{AttachMcast, CreateAh, cmd};
use crate::abi::ioctl::device;
use crate::errno::{Errno, Result};

impl Call<'_> {
    pub(super) fn invoke_write(&mut self) -> Result<()> {
        let number = self.attrs.u32(device::WRITE_CMD)?;
        if !self.file.context {
            // The provider asks before it opens the context whether the kernel executes commands
            // this way. The answer is about the missing input.
            return Err(if self.attrs.has(device::CORE_IN) {
                Errno::EINVAL
            } else {
                Errno::ENOSPC
            });
        }
        match number & !cmd::EX {
            cmd::QUERY_DEVICE => self.query_device(number),
            cmd::MODIFY_QP => self.modify_qp(),
            _ => match number {
                cmd::ALLOC_PD => self.alloc_pd(),
                cmd::CREATE_AH => self.create_ah(),
                cmd::REG_MR => self.reg_mr(),
                cmd::REREG_MR => self.rereg_mr(),
                cmd::ALLOC_MW => self.alloc_mw(),
                cmd::CREATE_COMP_CHANNEL => self.create_comp_channel(),
                cmd::RESIZE_CQ => self.resize_cq(),
                cmd::QUERY_QP => self.query_qp(),
                cmd::ATTACH_MCAST => self.multicast(true),
                cmd::DETACH_MCAST => self.multicast(false),
                cmd::MODIFY_SRQ => self.modify_srq(),
                cmd::QUERY_SRQ => self.query_srq(),
                cmd::OPEN_XRCD => self.open_xrcd(),
                cmd::OPEN_QP => self.open_qp(),
                cmd::EX_MODIFY_CQ => self.modify_cq(),
                _ => Err(Errno::EOPNOTSUPP),
            },
        }
    }

    /// Reads the structure of a command.
    pub(super) fn command<T: FromBytes + IntoBytes>(&self) -> Result<T> {
        self.attrs.read_whole(device::CORE_IN, Errno::ENOSPC)
    }

    /// Writes the response of a command.
    pub(super) fn respond<T: IntoBytes + Immutable>(&self, response: &T) -> Result<()> {
        self.attrs.write(device::CORE_OUT, response)
    }

    fn query_device(&mut self, number: u32) -> Result<()> {
        if !self.attrs.has(device::CORE_IN) {
            return Err(Errno::ENOSPC);
        }
        let mut response = self.nic.query_device(&Udata(&self.attrs))?;
        if number & cmd::EX == 0 {
            return self.respond(&response.base);
        }
        let length = self
            .attrs
            .length(device::CORE_OUT)
            .min(size_of_val(&response));
        response.response_length = u32::try_from(length).map_err(|_| Errno::EINVAL)?;
        self.respond(&response)
    }

    fn alloc_pd(&mut self) -> Result<()> {
        let number = self.core.next_pd;
        self.core.next_pd += 1;
        self.nic.alloc_pd(number, &Udata(&self.attrs))?;
        let handle = self.file.objects.insert(Kind::Pd(number), &[]);
        self.respond(&handle)
    }

    fn create_ah(&mut self) -> Result<()> {
        let command: CreateAh = self.command()?;
        let pd = self.file.objects.pd(command.pd_handle)?;
        if command.attr.port_num != 1 {
            return Err(Errno::EINVAL);
        }
        self.check_gid_index(command.attr.is_global, command.attr.grh.sgid_index)?;
        let udata = Udata(&self.attrs);
        let number = self.nic.create_ah(pd, &command.attr, &udata)?;
        let handle = self
            .file
            .objects
            .insert(Kind::Ah(number), &[command.pd_handle]);
        self.respond(&handle)
    }

    /// Fails if an address with a global route names an empty entry of the GID table.
    pub(super) fn check_gid_index(&self, is_global: u8, index: u8) -> Result<()> {
        let exists = |entry: &crate::abi::core::GidEntry| entry.gid_index == u32::from(index);
        if is_global != 0 && !self.cx.gids.iter().any(exists) {
            return Err(Errno::EINVAL);
        }
        Ok(())
    }

    fn multicast(&mut self, attach: bool) -> Result<()> {
        let command: AttachMcast = self.command()?;
        let (qp, kind) = self.file.objects.qp(command.qp_handle)?;
        if command.gid[0] != 0xff || kind != crate::abi::core::qp_type::UD {
            return Err(Errno::EINVAL);
        }
        if attach {
            self.nic.attach_multicast(qp, command.gid)
        } else {
            self.nic.detach_multicast(qp, command.gid)
        }
    }
}
