//! Device memory, its dma-bufs, and DMA handles.

use std::os::fd::IntoRawFd;

use super::Call;
use super::objects::Kind;
use crate::abi::ioctl::{dm, dmabuf, dmah};
use crate::abi::mlx5::QUERY_DM_HANDLE;
use crate::errno::{Errno, Result};

impl Call<'_> {
    pub(super) fn query_dm(&mut self) -> Result<()> {
        let handle = self.attrs.handle(QUERY_DM_HANDLE)?;
        let number = self.file.objects.dm(handle)?;
        self.nic.query_dm(number, &self.attrs)
    }

    pub(super) fn alloc_dm(&mut self) -> Result<()> {
        let length = self.attrs.u64(dm::LENGTH)?;
        let number = self.nic.alloc_dm(length, &self.attrs)?;
        let handle = self.file.objects.insert(Kind::Dm(number), &[]);
        self.attrs.write_handle(dm::HANDLE, u64::from(handle))
    }

    /// Exports memory of the device that the program can map. As `dma_buf_fd` does, it returns a
    /// new descriptor, which keeps the memory.
    pub(super) fn alloc_dmabuf(&mut self) -> Result<()> {
        let offset = self.attrs.u64(dmabuf::PGOFF)?;
        let fd = self.nic.export(offset)?;
        self.attrs
            .write_handle(dmabuf::HANDLE, u64::from(fd.into_raw_fd().cast_unsigned()))
    }

    /// Creates a handle with the hints of PCIe's TLP processing (`uverbs_std_types_dmah.c`, and
    /// `mlx5_ib_alloc_dmah` for the fields that it needs).
    pub(super) fn alloc_dmah(&mut self) -> Result<()> {
        const LOW_BITS: u8 = 3;
        let attrs = &self.attrs;
        let cpu = attrs.has(dmah::CPU_ID).then(|| attrs.u32(dmah::CPU_ID));
        if let Some(cpu) = cpu.transpose()?
            && !crate::syscall::may_run_on(cpu)
        {
            return Err(Errno::EPERM);
        }
        let hint: u8 = attrs.read_whole(dmah::PH, Errno::EINVAL)?;
        if hint & !LOW_BITS != 0 || attrs.has(dmah::CPU_ID) != attrs.has(dmah::TPH_MEM_TYPE) {
            return Err(Errno::EINVAL);
        }
        let handle = self.file.objects.insert(Kind::Dmah, &[]);
        self.attrs.write_handle(dmah::HANDLE, u64::from(handle))
    }
}
