//! The model: the owner and the contents of every buffer, and the requests in flight of every
//! queue. The actions compare it with the library.

pub(crate) mod data;
mod datagram;
mod link;
mod memory;
mod message;
mod queue_pair;
mod queues;
mod request;
mod window;

pub(crate) use self::datagram::{Datagram, DatagramKind};
pub(crate) use self::link::Link;
pub(crate) use self::memory::{
    BufModel, Cell, Effect, FrozenModel, Id, Memory, OwnedBuf, Pending, PoolModel, RegionModel,
    SinkModel, Written,
};
pub(crate) use self::message::{Arrival, Message};
pub(crate) use self::queue_pair::{End, HeldModel, Leaked, QpIndex, Removed};
pub(crate) use self::queues::{CqModel, DomainModel, SrqModel};
pub(crate) use self::request::{Entry, Fate, position_in_flight, take_in_flight};
pub(crate) use self::window::{AnyBound, AnyWindow, FreeWindow, WindowModel, WindowRequest};
