//! The way back: from memory that peers may write to, to memory with one owner. It takes a proof.

use std::fmt;

use super::access::AccessFlags;
use super::buf::Buf;
use super::pool::Pool;
use super::shared::SharedRegion;
use crate::error::Error;
use crate::kind::ErrorKind;

impl SharedRegion {
    /// Turns the whole region into a buffer with one owner, against the proof that no peer can
    /// still reach it:
    ///
    /// 1. this is the last share of the region: no clone or slice, no queue pair that
    ///    [holds](crate::QueuePair::hold) it, no memory window bound to it, as a window lets go of
    ///    its region only when it is freed or a completion says that its key was invalidated;
    /// 2. no queue pair of the protection domain is left, nor shared receive queue of an XRC
    ///    domain, so nobody can name the region's own key. A region without a remote access of its
    ///    own, which peers reached through windows only, does not need this;
    /// 3. the region is deregistered. It is then registered anew for local access only.
    ///
    /// # Errors
    /// Gives the region back, unchanged, with what is missing.
    ///
    /// # References
    /// [`ibv_dereg_mr(3)`](https://man7.org/linux/man-pages/man3/ibv_reg_mr.3.html)
    pub fn try_into_buf(self) -> std::result::Result<Buf, ReclaimError> {
        if u32::try_from(self.region().len()).is_err() {
            return Err(ReclaimError::because(
                self,
                ErrorKind::InvalidInput,
                "it is larger than a buffer can be",
            ));
        }
        if self.access().intersects(AccessFlags::REMOTE) && self.pd().queue_pairs() > 0 {
            let why = format!(
                "{} queue pairs of its protection domain are alive",
                self.pd().queue_pairs()
            );
            return Err(ReclaimError::because(self, ErrorKind::Mismatch, &why));
        }
        let (start, len) = (self.start, self.len);
        let region = self.into_region().map_err(|shared| {
            ReclaimError::because(
                shared,
                ErrorKind::Mismatch,
                "a clone, a queue pair or a memory window holds it",
            )
        })?;
        match region.into_local() {
            Ok(region) => Ok(Pool::of_whole(region)),
            Err((region, error)) => {
                let mut region = Self::of(region);
                (region.start, region.len) = (start, len);
                Err(ReclaimError { region, error })
            }
        }
    }
}

/// A region that could not be turned into a buffer, and why.
///
/// # Example
/// ```no_run
/// # let pd = ibverbs::Device::by_name("rxe0")?.open()?.alloc_pd()?;
/// use ibverbs::AccessFlags;
/// let region = pd.shared(4096, AccessFlags::REMOTE_WRITE)?;
/// if let Err(shared) = region.try_into_buf() {
///     println!("{}", shared.error()); // a queue pair of the domain is alive
///     let region = shared.into_region();
/// }
/// # Ok::<(), ibverbs::Error>(())
/// ```
pub struct ReclaimError {
    region: SharedRegion,
    error: Error,
}

impl ReclaimError {
    fn because(region: SharedRegion, kind: ErrorKind, why: &str) -> Self {
        let what = format!(
            "a shared region of {} bytes stays shared: {why}",
            region.len()
        );
        Self {
            region,
            error: Error::new(kind, "try_into_buf", what),
        }
    }

    /// What is missing.
    pub fn error(&self) -> &Error {
        &self.error
    }

    /// The region, as it was.
    pub fn into_region(self) -> SharedRegion {
        self.region
    }
}

impl fmt::Debug for ReclaimError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.error, f)
    }
}

impl fmt::Display for ReclaimError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.error, f)
    }
}

impl std::error::Error for ReclaimError {}

impl From<ReclaimError> for Error {
    fn from(still: ReclaimError) -> Self {
        still.error
    }
}
