//! The device of a walk, and what it supports.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use ibverbs::caps::AtomicCap;
use ibverbs::device::TransportType;
use ibverbs::efa::{EfaCaps, Srd};
use ibverbs::mw::Type1;
use ibverbs::{
    AccessFlags, Context, CqOptions, ErrorKind, MemoryOptions, QpOptions, Rc, RcPath, Result,
    SrqOptions, Uc, Ud,
};

/// The device of a walk and its properties.
#[derive(Clone, Debug)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "the properties of a device are independent of each other"
)]
pub struct Setup {
    /// The opened device.
    pub context: Context,
    /// The operations of the device.
    pub support: Support,
    /// The address of the device, to connect with rdma_cm.
    pub address: Option<IpAddr>,
    /// The path between queue pairs that connect without rdma_cm, which iWARP requires.
    pub path: Option<RcPath>,
    /// Sends complete in the order of posting, except those of SRD (docs/drivers.md).
    pub in_order: bool,
    /// A send of a connection waits if the peer has no receive.
    pub sends_wait: bool,
    /// The buffer of a failed request returns when its queue pair is destroyed, and the device
    /// writes to it until then.
    pub keeps_failed: bool,
    /// A queue pair with requests in flight cannot be destroyed.
    pub leaks_busy: bool,
    /// A datagram arrives if the receiver has a receive for it.
    pub loses_no_datagrams: bool,
    /// Time limit for requests to complete.
    pub timeout: Duration,
    /// Sizes of buffers.
    pub buf_sizes: &'static [usize],
}

/// The transports and operations of a device, as far as a walk uses them.
#[derive(Clone, Debug)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "the operations of a device are independent of each other"
)]
pub struct Support {
    pub(crate) rc: bool,
    pub(crate) uc: bool,
    pub(crate) ud: bool,
    pub(crate) srd: bool,
    /// SRD queue pairs read memory of the peer.
    pub(crate) srd_reads: bool,
    /// SRD queue pairs write memory of the peer.
    pub(crate) srd_writes: bool,
    /// The number of retries of an SRD queue pair can be set.
    pub(crate) srd_retries: bool,
    pub(crate) atomics: bool,
    pub(crate) remote_writes: bool,
    pub(crate) windows: bool,
    pub(crate) srqs: bool,
    pub(crate) cq_resizing: bool,
    pub(crate) immediate_data: bool,
    pub(crate) empty_receives: bool,
    /// Regions can be addressed from 0, and queues can use such addresses.
    pub(crate) device_addresses: bool,
    /// The destination of a READ must be a shared region, and a shared region cannot become a
    /// buffer.
    pub(crate) is_iwarp: bool,
    pub(crate) max_send_sge: u32,
    pub(crate) max_recv_sge: u32,
    pub(crate) max_inline: u32,
    /// Largest datagram, in bytes.
    pub(crate) max_datagram: usize,
}

/// Support that an action needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    Nothing,
    Connections,
    Datagrams,
    Reads,
    Resets,
    Windows,
    Srqs,
    CqResizing,
    BusyDestroy,
}

/// Returns `false` if the device does not support an operation.
fn is_supported<T>(result: Result<T>) -> Result<bool> {
    match result {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::Unsupported => Ok(false),
        Err(error) => Err(error),
    }
}

impl Support {
    /// Excludes receives without memory, which the provider of EFA does not complete.
    #[must_use]
    pub fn without_empty_receives(mut self) -> Self {
        self.empty_receives = false;
        self
    }

    /// Finds out what a device supports: from its attributes, and by creating objects.
    ///
    /// # Errors
    /// Fails if an operation fails for another reason than that it is not supported.
    pub fn of(context: &Context) -> Result<Self> {
        let transport = context.device().transport();
        let is_iwarp = transport == TransportType::IWARP;
        let (attr, port) = (context.query_device()?, context.query_port(1)?);
        let (pd, mut cq) = (
            context.alloc_pd()?,
            context.create_cq(CqOptions::new().depth(8))?,
        );
        // Only EFA has a transport without a name. Its provider is not asked about other devices.
        let efa = (transport == TransportType::UNSPECIFIED).then(|| context.query_efa());
        let efa = efa.and_then(Result::ok);
        let has = |cap| efa.is_some_and(|efa| efa.device_caps.contains(cap));
        let options = QpOptions::new().max_send_wr(1).max_recv_wr(1);
        macro_rules! has_transport {
            ($transport:ty) => {
                is_supported(pd.create_qp::<$transport>(&cq, &cq, options))?
            };
        }
        let srd = efa.is_some() && has_transport!(Srd);
        Ok(Self {
            rc: has_transport!(Rc),
            // Messages of UC are identified by their immediate data.
            uc: !is_iwarp && has_transport!(Uc),
            ud: has_transport!(Ud),
            srd,
            srd_reads: srd && has(EfaCaps::RDMA_READ),
            srd_writes: srd && has(EfaCaps::RDMA_WRITE),
            srd_retries: srd && has(EfaCaps::RNR_RETRY),
            atomics: attr.atomic_cap != AtomicCap::NONE,
            remote_writes: is_supported(pd.shared(64, AccessFlags::REMOTE_WRITE))?,
            windows: is_supported(pd.alloc_mw::<Type1>())?,
            srqs: is_supported(pd.create_srq(SrqOptions::new().max_wr(1)))?,
            cq_resizing: is_supported(cq.resize(16))?,
            // No device reports these two.
            immediate_data: !is_iwarp,
            empty_receives: !is_iwarp && efa.is_none(),
            device_addresses: {
                let zero_based = MemoryOptions::new().zero_based(true);
                is_supported(pd.shared_with(64, AccessFlags::REMOTE_READ, zero_based))?
                    && is_supported(pd.create_srq(SrqOptions::new().device_addresses(true)))?
            },
            is_iwarp,
            max_send_sge: efa.map_or(attr.max_sge, |efa| efa.max_sq_sge.into()),
            max_recv_sge: efa.map_or(attr.max_sge, |efa| efa.max_rq_sge.into()),
            max_inline: efa.map_or(64, |efa| efa.inline_buf_size.into()),
            max_datagram: if efa.is_some() {
                port.max_msg_sz as usize
            } else {
                port.active_mtu.bytes().map_or(256, |bytes| bytes as usize)
            },
        })
    }
}

impl Setup {
    /// Returns `true` if the device supports what an action needs.
    pub(crate) fn has(&self, need: Need) -> bool {
        let support = &self.support;
        let datagrams = support.ud || support.srd;
        match need {
            Need::Nothing => true,
            Need::Connections => support.rc,
            Need::Datagrams => datagrams,
            Need::Reads => support.rc || support.srd_reads,
            // rdma_cm does not connect a queue pair twice.
            Need::Resets => self.path.is_some() || datagrams,
            Need::Windows => support.windows,
            Need::Srqs => support.srqs,
            Need::CqResizing => support.cq_resizing,
            Need::BusyDestroy => !self.leaks_busy,
        }
    }
}

impl fmt::Display for Support {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = [
            (self.rc, "RC"),
            (self.uc, "UC"),
            (self.ud, "UD"),
            (self.srd, "SRD"),
            (self.srd_reads, "READ of SRD"),
            (self.srd_writes, "WRITE of SRD"),
            (self.atomics, "atomics"),
            (self.windows, "memory windows"),
            (self.srqs, "shared receive queues"),
            (self.cq_resizing, "resizing of completion queues"),
            (self.device_addresses, "addresses of the device"),
        ];
        let names = all.iter().filter_map(|&(has, name)| has.then_some(name));
        f.write_str(&names.collect::<Vec<_>>().join(", "))
    }
}
