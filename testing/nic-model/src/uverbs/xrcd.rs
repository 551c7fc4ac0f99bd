//! XRC domains. All opens with a descriptor of the same file share one domain.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;

use super::Call;
use super::objects::Kind;
use crate::abi::core::OpenXrcd;
use crate::errno::{Errno, Result};

/// A file by device and inode.
type FileId = (u64, u64);

#[derive(Default)]
pub(crate) struct Xrcds {
    /// Number of opens and file of each domain.
    domains: BTreeMap<u32, (u32, Option<FileId>)>,
    next: u32,
}

impl Xrcds {
    fn open(&mut self, file: Option<FileId>, create: bool, exclusive: bool) -> Result<u32> {
        if let Some(file) = file {
            let existing = self
                .domains
                .iter_mut()
                .find(|(_, (_, other))| *other == Some(file));
            if let Some((number, (opens, _))) = existing {
                if exclusive {
                    return Err(Errno::EINVAL);
                }
                *opens += 1;
                return Ok(*number);
            }
        }
        if !create {
            return Err(Errno(libc::EAGAIN));
        }
        self.next += 1;
        self.domains.insert(self.next, (1, file));
        Ok(self.next)
    }

    pub(super) fn close(&mut self, number: u32) {
        if let Some((opens, _)) = self.domains.get_mut(&number) {
            *opens -= 1;
            if *opens == 0 {
                self.domains.remove(&number);
            }
        }
    }
}

impl Call<'_> {
    pub(super) fn open_xrcd(&mut self) -> Result<()> {
        let command: OpenXrcd = self.command()?;
        let fd = command.fd.cast_signed();
        let file = if fd < 0 {
            None
        } else {
            let status = fs::metadata(format!("/proc/self/fd/{fd}")).map_err(|_| Errno::EBADF)?;
            Some((status.dev(), status.ino()))
        };
        let flags = command.oflags.cast_signed();
        let create = flags & libc::O_CREAT != 0;
        if flags & !(libc::O_CREAT | libc::O_EXCL) != 0 || (file.is_none() && !create) {
            return Err(Errno::EINVAL);
        }
        let exclusive = flags & libc::O_EXCL != 0;
        let number = self.core.xrcds.open(file, create, exclusive)?;
        let handle = self.file.objects.insert(Kind::Xrcd(number), &[]);
        self.respond(&handle)
    }
}
