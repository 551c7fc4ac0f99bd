//! Device memory.

use super::Call;
use super::objects::Kind;
use crate::abi::ioctl::dm;
use crate::abi::mlx5::QUERY_DM_HANDLE;
use crate::errno::Result;

impl Call<'_> {
    pub(super) fn query_dm(&mut self) -> Result<()> {
        let handle = self.attrs.handle(QUERY_DM_HANDLE)?;
        let number = self.file.objects.dm(handle)?;
        self.nic.query_dm(number, &self.attrs)
    }

    pub(super) fn alloc_dm(&mut self) -> Result<()> {
        let length = self.attrs.u64(dm::LENGTH)?;
        let number = self.nic.alloc_dm(length, &self.attrs)?;
        let handle = self.file.objects.insert(Kind::Dm { number }, &[]);
        self.attrs.write_handle(dm::HANDLE, u64::from(handle))
    }
}
