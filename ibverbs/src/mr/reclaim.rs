//! Conversion of a shared region to a buffer, which requires proof that peers have no access.

use super::access::AccessFlags;
use super::buf::Buf;
use super::pool::Pool;
use super::shared::SharedRegion;
use crate::error::{Error, ErrorKind, wraps_error};

impl SharedRegion {
    /// Converts the whole region to a buffer with one owner. Peers must not be able to access it
    /// any more, which requires that:
    ///
    /// 1. This is the last reference to the region: there is no clone or slice, no queue pair
    ///    [holds](crate::QueuePair::hold) it, and no memory window is bound to it. A window
    ///    releases its region when it is freed, or when a completion reports that its key was
    ///    invalidated.
    /// 2. The protection domain has no queue pair and no shared receive queue of an XRC domain, so
    ///    the region's key cannot be used. A region without remote access rights of its own, which
    ///    peers accessed through windows only, does not need this.
    /// 3. The memory was never registered in another domain
    ///    ([`register_in`](Self::register_in)).
    ///
    /// The region is then deregistered and registered again for local access only.
    ///
    /// # Errors
    /// Returns the unchanged region and the reason:
    /// - [`ErrorKind::Mismatch`]: one of the conditions above is not met.
    /// - [`ErrorKind::InvalidInput`]: the region is larger than a buffer can be.
    /// - [`ErrorKind::Unsupported`]: peers could read the region, and the device may still transmit
    ///   it to one of them after every queue pair was destroyed, as Soft-iWARP does. A buffer would
    ///   send its later contents to that peer. Copy the data to a new buffer instead.
    #[doc(alias = "ibv_dereg_mr")]
    pub fn try_into_buf(self) -> Result<Buf, ReclaimError> {
        if u32::try_from(self.region().len()).is_err() {
            return Err(ReclaimError::new(
                self,
                ErrorKind::InvalidInput,
                "it is larger than a buffer can be",
            ));
        }
        let pd = self.pd().clone();
        // Locked until peers have no access, so that no queue pair gives them access meanwhile.
        let queue_pairs = pd.queue_pairs();
        if self.access().intersects(AccessFlags::REMOTE) && *queue_pairs > 0 {
            let reason = format!("{queue_pairs} queue pairs of its protection domain exist");
            return Err(ReclaimError::new(self, ErrorKind::Mismatch, &reason));
        }
        if self.region().is_registered_again() {
            let reason = "its memory was registered in several protection domains";
            return Err(ReclaimError::new(self, ErrorKind::Mismatch, reason));
        }
        if self.region().is_read_after_deregistration() {
            let reason = format!(
                "{} may still transmit it to a peer that was reading it",
                self.pd().context().device_name()
            );
            let mut failed = ReclaimError::new(self, ErrorKind::Unsupported, &reason);
            failed.error = failed.error.with_help("copy the data to a new buffer");
            return Err(failed);
        }
        let (start, len) = (self.start, self.len);
        let region = self.into_region().map_err(|shared| {
            ReclaimError::new(
                shared,
                ErrorKind::Mismatch,
                "a clone, a queue pair or a memory window holds it",
            )
        })?;
        match region.into_local() {
            Ok(region) => Ok(Pool::whole_region(region)),
            Err((region, error)) => {
                let mut region = Self::from_region(region);
                (region.start, region.len) = (start, len);
                Err(ReclaimError { region, error })
            }
        }
    }
}

/// A region that could not be converted to a buffer, and the reason.
///
/// # Example
/// ```no_run
/// # let pd = ibverbs::Device::by_name("rxe0")?.open()?.alloc_pd()?;
/// use ibverbs::AccessFlags;
/// let region = pd.shared(4096, AccessFlags::REMOTE_WRITE)?;
/// if let Err(failed) = region.try_into_buf() {
///     println!("{}", failed.error()); // a queue pair of the domain exists
///     let region = failed.into_region();
/// }
/// # Ok::<(), ibverbs::Error>(())
/// ```
pub struct ReclaimError {
    region: SharedRegion,
    error: Error,
}

impl ReclaimError {
    fn new(region: SharedRegion, kind: ErrorKind, reason: &str) -> Self {
        let what = format!(
            "convert a shared region of {} bytes to a buffer: {reason}",
            region.len()
        );
        Self {
            region,
            error: Error::new(kind, "try_into_buf", what),
        }
    }

    /// Returns the unchanged region.
    pub fn into_region(self) -> SharedRegion {
        self.region
    }
}

wraps_error!(ReclaimError);
