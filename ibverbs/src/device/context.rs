//! An open device.

#![allow(unsafe_code)]

use std::fmt;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLockReadGuard, RwLockWriteGuard};

use rdma_sys::{ibv_close_device, ibv_context, ibv_open_device};

use super::list::Device;
use super::properties::{Avoided, DeviceProperties, LeftCompletions};
use super::provider;
use super::qp_numbers::{LeftNumbers, QpNumbers};
use crate::convert::non_null;
use crate::error::{Error, ErrorKind, Result};
use crate::forked::{self, Object};
use crate::raw::{AsRaw, as_raw};

/// An open device, on which protection domains, completion queues and channels are created.
///
/// Cloning is cheap; all clones refer to the same open device.
///
/// # Example
/// ```no_run
/// let context = ibverbs::Device::by_name("rxe0")?.open()?;
/// println!("{} queue pairs", context.query_device()?.max_qp);
/// # Ok::<(), ibverbs::Error>(())
/// ```
#[doc(alias = "ibv_open_device")]
#[derive(Clone)]
pub struct Context(Arc<OpenContext>);

struct OpenContext {
    raw: NonNull<ibv_context>,
    device: Device,
    properties: DeviceProperties,
    soft_roce: OnceLock<bool>,
    max_read_sge: OnceLock<u32>,
    numbers: QpNumbers,
    queries: Mutex<()>,
}

// SAFETY: an ibv_context may be used from several threads at the same time (ibv_open_device(3):
// "thread safe").
unsafe impl Send for OpenContext {}
// SAFETY: as for Send.
unsafe impl Sync for OpenContext {}

impl Drop for OpenContext {
    fn drop(&mut self) {
        forked::remove(Object::Context(self.raw));
        // SAFETY: this is the last reference: every child object holds an Arc of it, so no child
        // exists.
        let returned = unsafe { ibv_close_device(self.raw.as_ptr()) };
        if returned != 0 {
            crate::leak::with_parent(&self.device);
        }
    }
}

impl Device {
    /// Opens the device.
    ///
    /// # Errors
    /// - [`PermissionDenied`](crate::ErrorKind::PermissionDenied): the caller may not open
    ///   `/dev/infiniband/uverbs*`.
    /// - [`NotFound`](crate::ErrorKind::NotFound): the device was removed, or its device node is
    ///   missing.
    #[doc(alias = "ibv_open_device")]
    pub fn open(&self) -> Result<Context> {
        Context::open(self.clone())
    }
}

impl Context {
    fn open(device: Device) -> Result<Self> {
        crate::fork::record_open();
        let raw = non_null(
            "ibv_open_device",
            || device.name().into(),
            || {
                // SAFETY: `device` keeps its entry of the device list alive.
                unsafe { ibv_open_device(device.as_raw()) }
            },
        )?;
        crate::trace::opened(device.name());
        forked::add(Object::Context(raw));
        // SAFETY: the device was just opened.
        let provider = unsafe { provider::name(raw.as_ptr()) };
        let transport = device.transport();
        Ok(Self(Arc::new(OpenContext {
            raw,
            properties: DeviceProperties::of(provider.as_deref(), transport),
            device,
            soft_roce: OnceLock::new(),
            max_read_sge: OnceLock::new(),
            numbers: QpNumbers::default(),
            queries: Mutex::default(),
        })))
    }

    /// Returns the device that is open.
    pub fn device(&self) -> &Device {
        &self.0.device
    }

    /// Returns the maximum number of local entries of an RDMA read. Queried once.
    pub(crate) fn max_read_sge(&self) -> u32 {
        *self
            .0
            .max_read_sge
            .get_or_init(|| match self.query_device() {
                Ok(attr) if attr.max_sge_rd > 0 => attr.max_sge_rd,
                // Some drivers report no limit. The provider then refuses what it does not have.
                _ => u32::MAX,
            })
    }

    /// Returns `true` if the library does not do this with the provider of the device.
    #[inline]
    pub(crate) fn avoids(&self, what: Avoided) -> bool {
        self.0.properties.avoids(what)
    }

    pub(crate) fn properties(&self) -> DeviceProperties {
        self.0.properties
    }

    /// Returns `true` if completion queues must not be polled while a queue pair is created or
    /// destroyed.
    pub(crate) fn polls_take_turns(&self) -> bool {
        self.0.properties.left_completions == LeftCompletions::Found
    }

    /// Returns `true` if the device may access the memory of a request after its failure.
    pub(crate) fn marks_failures(&self) -> bool {
        !self.0.properties.stops_before_failures
    }

    /// Excludes the creation and destruction of queue pairs during a poll that must take turns.
    pub(crate) fn numbers(&self) -> Option<RwLockReadGuard<'_, LeftNumbers>> {
        self.polls_take_turns().then(|| self.0.numbers.read())
    }

    /// Excludes the creation and destruction of other queue pairs where a number must not be used
    /// again before the completions of the queue pair that had it are gone. Also excludes polls
    /// that must take turns.
    pub(crate) fn lock_numbers(&self) -> Option<RwLockWriteGuard<'_, LeftNumbers>> {
        let take_turns = self.0.properties.numbers_take_turns();
        take_turns.then(|| self.0.numbers.write())
    }

    /// Checks that the provider can be kept from copying to addresses that this process does not
    /// have.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`].
    pub(crate) fn check_device_addresses(
        &self,
        verb: &'static str,
        sends_raw_packets: bool,
    ) -> Result<()> {
        let avoided = self.0.properties.avoided;
        let copied = if avoided.contains(Avoided::DEVICE_ADDRESSES) {
            "messages"
        } else if sends_raw_packets && avoided.contains(Avoided::RAW_DEVICE_ADDRESSES) {
            "headers of raw packets"
        } else {
            return Ok(());
        };
        let what = format!(
            "device addresses on {}: its provider copies {copied} with the processor",
            self.device_name()
        );
        Err(Error::new(ErrorKind::Unsupported, verb, what).with_help("use memory of the host"))
    }

    /// Excludes other queries of queue pairs.
    pub(crate) fn lock_queries(&self) -> MutexGuard<'_, ()> {
        let locked = self.0.queries.lock();
        locked.unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns `true` for Soft-RoCE, for which some calls need a workaround (docs/drivers.md). The
    /// device is queried once.
    pub(crate) fn is_soft_roce(&self) -> Result<bool> {
        if let Some(&known) = self.0.soft_roce.get() {
            return Ok(known);
        }
        let is_soft_roce = self.query_device()?.is_soft_roce();
        Ok(*self.0.soft_roce.get_or_init(|| is_soft_roce))
    }

    /// Returns the name of the open device.
    pub fn device_name(&self) -> &str {
        self.0.device.name()
    }

    /// Returns the number of completion vectors (interrupts).
    /// [`CqOptions::comp_vector`](crate::CqOptions) must be less than this.
    ///
    /// # Example
    /// This example creates one completion queue per completion vector:
    /// ```no_run
    /// # let context = ibverbs::Device::by_name("rxe0")?.open()?;
    /// use ibverbs::CqOptions;
    /// let cqs = (0..context.num_comp_vectors())
    ///     .map(|comp_vector| {
    ///         context.create_cq(CqOptions::new().comp_vector(comp_vector))
    ///     })
    ///     .collect::<ibverbs::Result<Vec<_>>>()?;
    /// # Ok::<(), ibverbs::Error>(())
    /// ```
    pub fn num_comp_vectors(&self) -> u32 {
        // SAFETY: the context is open; the library sets the field when it opens the device.
        let vectors = unsafe { (*self.as_raw()).num_comp_vectors };
        u32::try_from(vectors).unwrap_or(0)
    }
}

as_raw!(Context: ibv_context, 0.raw);

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("device", &self.device_name())
            .finish()
    }
}
