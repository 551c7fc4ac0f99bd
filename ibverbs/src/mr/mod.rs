//! Memory, split at registration by who may touch it.
//!
//! | type | a device may | the CPU sees | posting |
//! |---|---|---|---|
//! | [`Buf`], a piece of a [`Pool`] | read and write while it is posted | `&[u8]`, `&mut [u8]` while owned | moves in; the completion gives it back |
//! | [`BufList`], several of them | as one message | as the slices of its buffers | as a `Buf` |
//! | [`Frozen`] | read | `&[u8]` | any number of sends at once, through [`Held`] |
//! | [`SharedRegion`], open to peers | read and write at any time, and its peers too | copies in and out, atomics; no references | as local memory, through [`Held`] |
//! | [`DeviceRegion`], where the processor has no address | as its access says | nothing | as local memory, through [`Held`] |
//! | [`Sink`] | write | nothing | any number of receives at once, through [`Held`] |

mod access;
mod advise;
mod alloc;
mod buf;
mod caller;
mod copy;
mod device_region;
mod frozen;
mod held;
mod huge;
mod list;
mod options;
mod pool;
mod pool_inner;
mod reclaim;
mod region;
mod registration;
mod remote;
mod rereg;
mod shared;
mod sink;

pub use self::access::AccessFlags;
pub use self::advise::Advice;
pub use self::buf::Buf;
pub use self::caller::CallerMemory;
pub use self::device_region::DeviceRegion;
pub use self::frozen::Frozen;
pub(crate) use self::held::Keep;
pub use self::held::{Held, HeldList, Hold};
pub use self::huge::HugePageSize;
pub use self::list::BufList;
pub use self::options::{Backing, MemoryOptions};
pub use self::pool::Pool;
pub use self::reclaim::ReclaimError;
pub(crate) use self::region::Region;
pub(crate) use self::registration::Registration;
pub use self::remote::RemoteMemory;
pub use self::rereg::ReregError;
pub use self::shared::SharedRegion;
pub use self::sink::Sink;
