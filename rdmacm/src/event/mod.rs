//! Events of the connection manager, and the channels that deliver them. All types that own an
//! `rdma_cm_id` receive their events through this module.

mod announcing;
mod channel;
mod cm_event;
mod dispatcher;
#[cfg(test)]
mod loom_tests;
mod raw_channel;
mod sync;
mod waker;

use self::announcing::{Announce, AnnouncingGuard, AnnouncingLock, HasNext};
pub use self::channel::EventChannel;
pub(crate) use self::cm_event::Event;
pub use self::cm_event::{CmEvent, CmEventType};
use self::dispatcher::EventDispatcher;
pub use self::dispatcher::IdKey;
use self::raw_channel::Channel;
use self::waker::Waker;
