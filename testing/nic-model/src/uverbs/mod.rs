//! The kernel's verbs interface: the ioctls of an open device.

mod command;
mod comp_cntr;
mod cq;
mod device;
mod dm;
mod event;
mod mr;
mod mw;
pub(crate) mod objects;
mod qp;
mod srq;
mod xrcd;

use std::collections::BTreeMap;

use crate::abi::ioctl::{self, object};
use crate::abi::mlx5;
use crate::attr::{Attrs, Udata};
use crate::descriptors::Descriptors;
use crate::errno::{Errno, Result};
use crate::nic::{EventTarget, Nic, Shared};
use objects::{Kind, Objects};
pub(crate) use xrcd::Xrcds;

/// An open device.
#[derive(Default)]
pub(crate) struct File {
    /// The provider has allocated its context.
    context: bool,
    pub(crate) objects: Objects,
    /// Channel of the asynchronous events.
    async_channel: Option<u32>,
}

impl File {
    /// Returns `true` if the provider has allocated its context.
    pub(crate) fn has_context(&self) -> bool {
        self.context
    }

    /// Returns the channel of events that belong to no object.
    pub(crate) fn async_channel(&self) -> Option<u32> {
        self.async_channel
    }

    /// Keeps only what a child process can use: the context and its protection domains.
    pub(crate) fn forget_all_but_pds(&mut self) {
        self.objects.keep_pds();
        self.async_channel = None;
    }
}

/// State of the core that open devices share.
pub(crate) struct Core {
    next_pd: u32,
    xrcds: Xrcds,
    /// Events of each object that were created with it, for its destruction.
    targets: BTreeMap<(u8, u32), (Option<u32>, EventTarget)>,
}

impl Core {
    pub(crate) fn new() -> Self {
        Self {
            next_pd: 1,
            xrcds: Xrcds::default(),
            targets: BTreeMap::new(),
        }
    }

    /// Forgets the objects of the parent process.
    pub(crate) fn forget_targets(&mut self) {
        self.targets.clear();
    }
}

/// One call, and everything that it may change.
pub(crate) struct Call<'a> {
    pub(crate) attrs: Attrs,
    pub(crate) file: &'a mut File,
    pub(crate) descriptors: &'a mut Descriptors,
    pub(crate) core: &'a mut Core,
    pub(crate) nic: &'a mut dyn Nic,
    pub(crate) cx: &'a mut Shared,
}

impl Call<'_> {
    /// Executes the method `method` of `object`.
    pub(crate) fn execute(&mut self, object: u16, method: u16) -> Result<()> {
        let needs_context = !(object == object::DEVICE
            && matches!(
                method,
                ioctl::device::GET_CONTEXT | ioctl::device::INVOKE_WRITE
            ));
        if needs_context && !self.file.context {
            return Err(Errno::EINVAL);
        }
        match (object, method) {
            (object::DEVICE, ioctl::device::INVOKE_WRITE) => self.invoke_write(),
            (object::DEVICE, ioctl::device::QUERY_PORT) => self.query_port(),
            (object::DEVICE, ioctl::device::GET_CONTEXT) => self.get_context(),
            (object::DEVICE, ioctl::device::QUERY_CONTEXT) => self.query_context(),
            (object::DEVICE, ioctl::device::QUERY_GID_TABLE) => self.query_gid_table(),
            (object::DEVICE, ioctl::device::QUERY_GID_ENTRY) => self.query_gid_entry(),
            (object::DEVICE, ioctl::device::QUERY_PORT_SPEED) => self.query_port_speed(),
            (object::DEVICE, ioctl::device::QUERY_COMP_CNTR_CAPS) => self.query_comp_cntr_caps(),
            (object::ASYNC_EVENT, 0) => self.alloc_async_event(),
            (object::PD | object::AH | object::XRCD | object::MW, 0)
            | (object::MR, ioctl::mr::DESTROY)
            | (object::DM, ioctl::dm::FREE)
            | (object::DMAH, ioctl::dmah::FREE)
            | (object::COMP_CNTR, ioctl::comp_cntr::DESTROY) => self.destroy(),
            (object::PD, mlx5::PD_QUERY) => self.query_pd(),
            (object::DM, mlx5::DM_QUERY) => self.query_dm(),
            (object::CQ, ioctl::cq::CREATE) => self.create_cq(),
            (object::CQ, ioctl::cq::DESTROY) => self.destroy_cq(),
            (object::QP, ioctl::qp::CREATE) => self.create_qp(),
            (object::QP, ioctl::qp::DESTROY) => self.destroy_qp(),
            (object::QP, ioctl::qp::ATTACH_COMP_CNTR) => self.attach_comp_cntr(),
            (object::SRQ, ioctl::srq::CREATE) => self.create_srq(),
            (object::SRQ, ioctl::srq::DESTROY) => self.destroy_srq(),
            (object::MR, ioctl::mr::DM_MR_REG) => self.reg_dm_mr(),
            (object::MR, ioctl::mr::QUERY) => self.query_mr(),
            (object::MR, ioctl::mr::REG_DMABUF) => self.reg_dmabuf_mr(),
            (object::MR, ioctl::mr::REG) => self.reg_mr_method(),
            (object::DM, ioctl::dm::ALLOC) => self.alloc_dm(),
            (object::DMABUF, ioctl::dmabuf::ALLOC) => self.alloc_dmabuf(),
            // The kernel has these objects if the driver has their functions.
            (object::DMAH, _) if !self.nic.has_dma_handles() => Err(Errno::EPROTONOSUPPORT),
            (object::DMAH, ioctl::dmah::ALLOC) => self.alloc_dmah(),
            (object::COMP_CNTR, _) if self.nic.comp_cntr_caps().is_none() => {
                Err(Errno::EPROTONOSUPPORT)
            }
            (object::COMP_CNTR, ioctl::comp_cntr::CREATE) => self.create_comp_cntr(),
            (object::COMP_CNTR, ioctl::comp_cntr::MODIFY) => self.modify_comp_cntr(),
            // There is no paging on demand, and the provider reads the memory of a counter.
            (object::MR, ioctl::mr::ADVISE) | (object::COMP_CNTR, ioctl::comp_cntr::READ) => {
                Err(Errno::EOPNOTSUPP)
            }
            (object::DRIVER.., _) => self.nic.driver_method(object, method, &self.attrs),
            _ => Err(Errno::EPROTONOSUPPORT),
        }
    }

    /// Returns the number of a protection domain to a second context.
    fn query_pd(&mut self) -> Result<()> {
        let handle = self.attrs.handle(mlx5::QUERY_PD_HANDLE)?;
        let number = self.file.objects.pd(handle)?;
        self.attrs.write(mlx5::QUERY_PD_PDN, &number)
    }

    /// Destroys the object whose handle is attribute 0.
    fn destroy(&mut self) -> Result<()> {
        let handle = self.attrs.handle(0)?;
        let kind = self.file.objects.get(handle)?;
        self.file.objects.remove(handle)?;
        self.dispose(kind);
        Ok(())
    }

    /// Frees what the adapter has of an object.
    fn dispose(&mut self, kind: Kind) {
        match kind {
            Kind::Mr(key) | Kind::Mw(key) => self.cx.keys.remove(key),
            Kind::Dm(number) => self.nic.free_dm(number),
            Kind::Xrcd(number) => self.core.xrcds.close(number),
            Kind::Cq(number) => {
                self.nic.destroy_cq(number);
                self.forget_target(event::CQ, number);
            }
            Kind::Qp { number, .. } => {
                self.nic.destroy_qp(number);
                self.forget_target(event::QP, number);
            }
            Kind::Srq(number) => {
                self.nic.destroy_srq(number);
                self.forget_target(event::SRQ, number);
            }
            Kind::Ah(number) => self.nic.destroy_ah(number),
            Kind::CompCntr(number) => self.nic.destroy_comp_cntr(number),
            Kind::Dmah | Kind::Pd(_) | Kind::OpenedQp(_) => {}
        }
    }

    /// Destroys all objects when the device is closed.
    pub(crate) fn close(&mut self) {
        for kind in self.file.objects.take_all() {
            self.dispose(kind);
        }
        if let Some(channel) = self.file.async_channel.take() {
            self.cx.channels.release(channel);
        }
    }
}
