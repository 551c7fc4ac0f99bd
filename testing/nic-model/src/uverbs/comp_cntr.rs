//! Completion counters (`uverbs_std_types_comp_cntr.c` and `uverbs_std_types_qp.c` of the patches
//! of Linux that rdma-core 65 was made for).

use super::Call;
use super::objects::Kind;
use crate::abi::ioctl::{comp_cntr, device, qp};
use crate::errno::{Errno, Result};
use crate::nic::CounterChange;

/// `IB_UVERBS_COMP_CNTR_ENTRY_ERR`, the count of failures, and `_MODIFY_OP_INC`.
const ENTRY_ERR: u64 = 1;
const OP_INC: u64 = 1;
/// All bits of `ib_uverbs_qp_attach_comp_cntr_op`.
const ALL_OPS: u32 = 0x3f;

impl Call<'_> {
    pub(super) fn query_comp_cntr_caps(&mut self) -> Result<()> {
        let caps = self.nic.comp_cntr_caps().ok_or(Errno::EOPNOTSUPP)?;
        self.attrs
            .write(device::COMP_CNTR_MAX_COUNTERS, &caps.max_counters)?;
        self.attrs
            .write(device::COMP_CNTR_MAX_VALUE, &caps.max_value)?;
        self.attrs
            .write(device::COMP_CNTR_QP_ATTACH_OPS, &caps.qp_attach_ops)
    }

    pub(super) fn create_comp_cntr(&mut self) -> Result<()> {
        let number = self.nic.create_comp_cntr(&self.attrs)?;
        let handle = self.file.objects.insert(Kind::CompCntr(number), &[]);
        self.attrs
            .write_handle(comp_cntr::HANDLE, u64::from(handle))
    }

    pub(super) fn modify_comp_cntr(&mut self) -> Result<()> {
        let handle = self.attrs.handle(comp_cntr::HANDLE)?;
        let number = self.file.objects.comp_cntr(handle)?;
        let entry = self.attrs.u64(comp_cntr::ENTRY)?;
        let op = self.attrs.u64(comp_cntr::OP)?;
        if entry > ENTRY_ERR || op > OP_INC {
            return Err(Errno::EINVAL);
        }
        self.nic.modify_comp_cntr(
            number,
            CounterChange {
                failures: entry == ENTRY_ERR,
                adds: op == OP_INC,
                value: self.attrs.u64(comp_cntr::VALUE)?,
            },
        )
    }

    /// The kernel counts the queue pairs of a counter: it cannot be destroyed before them.
    pub(super) fn attach_comp_cntr(&mut self) -> Result<()> {
        let qp_handle = self.attrs.handle(qp::ATTACH_HANDLE)?;
        let (number, _) = self.file.objects.qp(qp_handle)?;
        let cntr_handle = self.attrs.handle(qp::ATTACH_CNTR_HANDLE)?;
        if self.nic.comp_cntr_caps().is_none() {
            return Err(Errno::EOPNOTSUPP);
        }
        let cntr = self.file.objects.comp_cntr(cntr_handle)?;
        let ops = self.attrs.u32(qp::ATTACH_OP_MASK)?;
        if ops == 0 || ops & !ALL_OPS != 0 {
            return Err(Errno::EINVAL);
        }
        self.nic.attach_comp_cntr(number, cntr, ops)?;
        self.file.objects.add_parent(qp_handle, cntr_handle);
        Ok(())
    }
}
