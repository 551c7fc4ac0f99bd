//! Memory regions.

use super::Call;
use super::objects::Kind;
use crate::abi::core::{RegMr, RegMrResp, ReregMr, ReregMrResp, access};
use crate::abi::ioctl::mr;
use crate::dmabuf::DmabufMapping;
use crate::errno::{Errno, Result};
use crate::keys::{Region, Target, index};
use crate::memory::{self, PAGE};
use crate::syscall;

/// Parts of a region that a new registration changes.
mod change {
    pub(super) const TRANSLATION: u32 = 1;
    pub(super) const PD: u32 = 2;
    pub(super) const ACCESS: u32 = 4;
    pub(super) const ALL: u32 = TRANSLATION | PD | ACCESS;
}

/// Checks access rights as the kernel's core does (`ib_check_mr_access`).
fn check_access(flags: u32) -> Result<()> {
    let known = access::LOCAL_WRITE
        | access::REMOTE_WRITE
        | access::REMOTE_READ
        | access::REMOTE_ATOMIC
        | access::MW_BIND
        | access::ZERO_BASED
        | access::HUGETLB
        | access::OPTIONAL;
    if flags & (access::REMOTE_WRITE | access::REMOTE_ATOMIC) != 0
        && flags & access::LOCAL_WRITE == 0
    {
        return Err(Errno::EINVAL);
    }
    if flags & access::ON_DEMAND != 0 {
        // The device reports no on-demand paging.
        return Err(Errno::EOPNOTSUPP);
    }
    if flags & !known != 0 {
        return Err(Errno::EINVAL);
    }
    Ok(())
}

/// Pins memory for a region.
fn region(start: u64, length: u64, iova: u64, flags: u32) -> Result<Region> {
    check_access(flags)?;
    if start % PAGE != iova % PAGE || length == 0 {
        return Err(Errno::EINVAL);
    }
    let writes =
        access::LOCAL_WRITE | access::REMOTE_WRITE | access::REMOTE_ATOMIC | access::MW_BIND;
    Ok(Region {
        memory: memory::pin(start, length, flags & writes != 0)?,
        iova,
        access: flags,
        mapping: None,
    })
}

/// Maps a dma-buf for a region.
fn dmabuf_region(fd: i32, offset: u64, length: u64, iova: u64, flags: u32) -> Result<Region> {
    let known = access::LOCAL_WRITE
        | access::REMOTE_WRITE
        | access::REMOTE_READ
        | access::REMOTE_ATOMIC
        | access::RELAXED_ORDERING;
    if offset % PAGE != iova % PAGE || flags & !known != 0 {
        return Err(Errno::EINVAL);
    }
    check_access(flags)?;
    let (mapping, memory) = DmabufMapping::new(fd, offset, length)?;
    Ok(Region {
        memory,
        iova,
        access: flags,
        mapping: Some(mapping),
    })
}

impl Call<'_> {
    /// Makes a region known. Returns its handle and its key.
    fn add_region(&mut self, mut region: Region, pd: u32, parents: &[u32]) -> Result<(u32, u32)> {
        let key = match self.cx.keys.insert(pd, Target::Region(region)) {
            Ok(key) => key,
            Err(errno) => {
                region.release();
                return Err(errno);
            }
        };
        let kind = Kind::Mr(index(key));
        Ok((self.file.objects.insert(kind, parents), key))
    }

    pub(super) fn reg_mr(&mut self) -> Result<()> {
        let command: RegMr = self.command()?;
        self.nic.check_access(command.access_flags)?;
        let region = region(
            command.start,
            command.length,
            command.hca_va,
            command.access_flags,
        )?;
        let pd = self.file.objects.pd(command.pd_handle)?;
        let pinned = self.cx.keys.pinned() + command.length.next_multiple_of(PAGE);
        if syscall::locked_memory_limit().is_some_and(|limit| pinned > limit) {
            return Err(Errno::ENOMEM);
        }
        let (mr_handle, key) = self.add_region(region, pd, &[command.pd_handle])?;
        self.respond(&RegMrResp {
            mr_handle,
            lkey: key,
            rkey: key,
        })
    }

    /// Registers memory by address with the checks of `UVERBS_METHOD_REG_MR`, which also accepts a
    /// DMA handle. A dma-buf is registered like by [`reg_dmabuf_mr`](Self::reg_dmabuf_mr).
    pub(super) fn reg_mr_method(&mut self) -> Result<()> {
        let attrs = &self.attrs;
        let by_address = attrs.has(mr::REG_ADDR) && !attrs.has(mr::REG_FD_OFFSET);
        let by_file = attrs.has(mr::REG_FD_OFFSET) && !attrs.has(mr::REG_ADDR);
        let has_fd = attrs.has(mr::REG_FD);
        if if has_fd { !by_file } else { !by_address } {
            return Err(Errno::EINVAL);
        }
        let pd_handle = attrs.handle(mr::REG_PD_HANDLE)?;
        let mut parents = vec![pd_handle];
        if let Some(handle) = attrs.optional_handle(mr::REG_DMA_HANDLE)? {
            if self.file.objects.get(handle)? != Kind::Dmah {
                return Err(Errno::EINVAL);
            }
            parents.push(handle);
        }
        let (iova, length) = (attrs.u64(mr::REG_IOVA)?, attrs.u64(mr::REG_LENGTH)?);
        let flags = attrs.u32(mr::REG_ACCESS_FLAGS)?;
        self.nic.check_access(flags)?;
        let pd = self.file.objects.pd(pd_handle)?;
        let region = if has_fd {
            let offset = attrs.u64(mr::REG_FD_OFFSET)?;
            let fd = attrs.optional_fd(mr::REG_FD)?.ok_or(Errno::EINVAL)?;
            dmabuf_region(fd, offset, length, iova, flags)?
        } else {
            region(attrs.u64(mr::REG_ADDR)?, length, iova, flags)?
        };
        let (handle, key) = self.add_region(region, pd, &parents)?;
        self.attrs.write_handle(mr::REG_HANDLE, u64::from(handle))?;
        self.attrs.write(mr::REG_RESP_LKEY, &key)?;
        self.attrs.write(mr::REG_RESP_RKEY, &key)
    }

    pub(super) fn rereg_mr(&mut self) -> Result<()> {
        let command: ReregMr = self.command()?;
        let flags = command.flags;
        if flags == 0 || flags & !change::ALL != 0 {
            return Err(Errno::EINVAL);
        }
        let number = self.file.objects.mr(command.mr_handle)?;
        let new_pd = if flags & change::PD != 0 {
            Some(self.file.objects.pd(command.pd_handle)?)
        } else {
            None
        };
        let entry = self.cx.keys.by_index(number).ok_or(Errno::ENOENT)?;
        let Target::Region(mut new) = entry.target else {
            return Err(Errno::EINVAL);
        };
        if flags & change::ACCESS != 0 {
            check_access(command.access_flags)?;
            new.access = command.access_flags;
        }
        if flags & change::TRANSLATION != 0 {
            let old = new;
            new = region(command.start, command.length, command.hca_va, new.access)?;
            if let Some(mapping) = old.mapping {
                mapping.unmap();
            }
        }
        entry.target = Target::Region(new);
        let key = entry.value;
        if let Some(pd) = new_pd {
            entry.pd = pd;
            let old = self.pd_of_mr(command.mr_handle);
            self.file
                .objects
                .replace_parent(command.mr_handle, old, command.pd_handle);
        }
        self.respond(&ReregMrResp {
            lkey: key,
            rkey: key,
        })
    }

    /// Returns the handle of the protection domain of a region.
    fn pd_of_mr(&self, handle: u32) -> u32 {
        self.file.objects.first_parent(handle).unwrap_or(handle)
    }

    pub(super) fn query_mr(&mut self) -> Result<()> {
        let number = self.file.objects.mr(self.attrs.handle(mr::QUERY_HANDLE)?)?;
        let entry = *self.cx.keys.by_index(number).ok_or(Errno::ENOENT)?;
        let Target::Region(region) = entry.target else {
            return Err(Errno::EINVAL);
        };
        self.attrs.write(mr::QUERY_RESP_LKEY, &entry.value)?;
        self.attrs.write(mr::QUERY_RESP_RKEY, &entry.value)?;
        self.attrs
            .write(mr::QUERY_RESP_LENGTH, &region.memory.length())?;
        self.attrs.write(mr::QUERY_RESP_IOVA, &region.iova)
    }

    pub(super) fn reg_dm_mr(&mut self) -> Result<()> {
        let pd_handle = self.attrs.handle(mr::DM_PD_HANDLE)?;
        let dm_handle = self.attrs.handle(mr::DM_DM_HANDLE)?;
        let offset = self.attrs.u64(mr::DM_OFFSET)?;
        let length = self.attrs.u64(mr::DM_LENGTH)?;
        let flags = self.attrs.u32(mr::DM_ACCESS_FLAGS)?;
        check_access(flags)?;
        // Addresses of device memory begin with 0.
        if flags & access::ZERO_BASED == 0 {
            return Err(Errno::EINVAL);
        }
        let pd = self.file.objects.pd(pd_handle)?;
        let dm = self.nic.dm(self.file.objects.dm(dm_handle)?)?;
        let region = Region {
            memory: dm.part(offset, length).ok_or(Errno::EINVAL)?,
            iova: 0,
            access: flags,
            mapping: None,
        };
        let key = self.cx.keys.insert(pd, Target::Region(region))?;
        let handle = self
            .file
            .objects
            .insert(Kind::Mr(index(key)), &[pd_handle, dm_handle]);
        self.attrs.write_handle(mr::DM_HANDLE, u64::from(handle))?;
        self.attrs.write(mr::DM_RESP_LKEY, &key)?;
        self.attrs.write(mr::DM_RESP_RKEY, &key)
    }

    /// Registers a dma-buf, with the checks of `UVERBS_METHOD_REG_DMABUF_MR`, of
    /// `ib_umem_dmabuf_get` and of `dma_buf_get`.
    pub(super) fn reg_dmabuf_mr(&mut self) -> Result<()> {
        let pd_handle = self.attrs.handle(mr::DMABUF_PD_HANDLE)?;
        let offset = self.attrs.u64(mr::DMABUF_OFFSET)?;
        let length = self.attrs.u64(mr::DMABUF_LENGTH)?;
        let iova = self.attrs.u64(mr::DMABUF_IOVA)?;
        let flags = self.attrs.u32(mr::DMABUF_ACCESS_FLAGS)?;
        let fd = self.attrs.optional_fd(mr::DMABUF_FD)?;
        let fd = fd.ok_or(Errno::EINVAL)?;
        self.nic.check_access(flags)?;
        let pd = self.file.objects.pd(pd_handle)?;
        let region = dmabuf_region(fd, offset, length, iova, flags)?;
        let (handle, key) = self.add_region(region, pd, &[pd_handle])?;
        self.attrs
            .write_handle(mr::DMABUF_HANDLE, u64::from(handle))?;
        self.attrs.write(mr::DMABUF_RESP_LKEY, &key)?;
        self.attrs.write(mr::DMABUF_RESP_RKEY, &key)
    }
}
