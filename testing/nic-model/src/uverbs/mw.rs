//! Memory windows.

use super::Call;
use super::objects::Kind;
use crate::abi::core::{AllocMw, AllocMwResp};
use crate::errno::{Errno, Result};
use crate::keys::{Target, index};

impl Call<'_> {
    pub(super) fn alloc_mw(&mut self) -> Result<()> {
        let command: AllocMw = self.command()?;
        if !matches!(command.mw_type, 1 | 2) {
            return Err(Errno::EINVAL);
        }
        let pd = self.file.objects.pd(command.pd_handle)?;
        let target = Target::Window {
            kind: command.mw_type,
            bound: None,
        };
        let key = self.cx.keys.insert(pd, target)?;
        let mw_handle = self
            .file
            .objects
            .insert(Kind::Mw(index(key)), &[command.pd_handle]);
        self.respond(&AllocMwResp {
            mw_handle,
            rkey: key,
        })
    }
}
