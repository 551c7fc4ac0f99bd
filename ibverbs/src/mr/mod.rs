//! Memory, divided at registration by who may access it.
//!
//! | type | device access | CPU access | use in requests |
//! |---|---|---|---|
//! | [`Buf`], one buffer of a [`Pool`], a [`GrowingPool`] or a `Vec` | read and write while posted | `&[u8]` and `&mut [u8]` while owned | moves in; the completion returns it |
//! | [`BufList`], several buffers as one message | like `Buf` | the slices of its buffers | like `Buf` |
//! | [`BufSlice`], a part of a `Buf` | like `Buf` | none | like `Buf`, but not received into |
//! | [`Frozen`] | read | `&[u8]` | any number of sends, through [`Held`] |
//! | [`SharedRegion`] | read and write at any time, also by peers | copies and atomics, no references | any number, through [`Held`] |
//! | [`DeviceRegion`] | as registered | none: it has no CPU address | any number, through [`Held`] |
//! | [`Sink`] | write | none | any number of receives, through [`Held`] |

mod access;
mod advise;
mod alloc;
mod buf;
mod bytes;
mod caller;
mod copy;
mod device_region;
mod dma_handle;
mod frozen;
mod growing;
mod held;
mod huge_pages;
mod list;
mod options;
mod owned;
mod pool;
mod reclaim;
mod region;
mod registration;
mod remote;
mod rereg;
mod shared;
mod shared_pool;
mod sink;
mod slice;

pub use self::access::AccessFlags;
pub use self::advise::Advice;
pub use self::buf::Buf;
pub use self::caller::CallerMemory;
pub use self::device_region::DeviceRegion;
pub use self::dma_handle::{DmaHandle, ProcessingHint, SteeringTarget};
pub use self::frozen::Frozen;
pub use self::growing::GrowingPool;
pub(crate) use self::held::{Grant, HeldMemory};
pub use self::held::{Held, HeldList, Hold};
pub use self::huge_pages::HugePageSize;
pub use self::list::BufList;
pub(crate) use self::list::gather_entries;
pub use self::options::{Backing, MemoryOptions};
pub use self::pool::Pool;
pub use self::reclaim::ReclaimError;
pub(crate) use self::region::Region;
pub(crate) use self::registration::{Extras, Registration};
pub use self::remote::RemoteMemory;
pub use self::rereg::ReregError;
pub use self::shared::SharedRegion;
pub use self::sink::Sink;
pub use self::slice::BufSlice;
