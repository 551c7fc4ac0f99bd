//! A verbs provider written in Rust. In a test or benchmark that links it, it replaces libibverbs.
//!
//! It is for Miri, which cannot run libmlx5, and for mistakes that no real provider makes on
//! request: a late completion, a write after a flush, a deallocation that fails. It shares our
//! assumptions about providers, so it cannot find a wrong one. That is what `nic-model` and the
//! devices are for, and the fake does not follow them where Miri and the errors prove nothing more.
//!
//! # Linking
//!
//! The crate defines the entry points of libibverbs that this workspace calls, without name
//! mangling. A definition in the executable takes precedence over one in a shared library, and
//! under Miri there are no shared libraries. `rdma-sys` and `ibverbs` therefore run unchanged on
//! top of it. [`Fake::new`] adds a device, which those crates find by name. It also refers to every
//! entry point, so that the linker includes all of them.
//!
//! # Modules
//!
//! ```text
//! test_api  profile  fault              for tests: create a device, choose its behavior, inject
//!                                       faults, inspect it
//! device  context  pd  td  mr  mw  ah   entry points, one file per kind of object
//! channel  event  srq  xrc  flow  dm
//! multicast  dc
//! cq  cq_ex  qp  post  wr               entry points and function tables, classic and extended
//! state  request  slab  handle          state of a device: plain safe data behind one lock
//! queue  execute  unconnected  window   execution of requests, and remote access to memory
//! loader                                the name of the provider, which programs look up
//! destroyed                             memory of objects that a test keeps
//! late  transmit                        requests that complete after later ones, and memory that
//!                                       is read or written after the completion
//! copy                                  copies between registered memory ranges
//! ```
//!
//! A C structure holds only a device pointer and an index. Everything else is in the
//! `DeviceState`, in safe Rust. `unsafe` is needed where C pointers enter (handles and lists of
//! requests) and where bytes are copied. As in a real device, copies use integer addresses
//! (`ptr::with_exposed_provenance`). Miri therefore checks that the memory of a request is
//! allocated, that no conflicting reference to it is in use, and that no thread races with the
//! device.
//!
//! # Supported features
//!
//! Loopback between reliable queue pairs of one device, connected by queue pair number (also XRC,
//! with [`Profile::more_verbs`]), and datagrams. A send is executed when it is posted, unless the
//! device is [stalled](Fake::stall) or the peer has no receive. A violation of the verbs API is
//! recorded, and the test fails when the [`Fake`] is dropped. Examples are an object destroyed
//! before its children, a key without a region, or a region deregistered with requests in flight.

#![allow(
    unsafe_code,
    reason = "the crate implements a C interface, which consists of raw pointers"
)]

mod ah;
mod channel;
mod context;
mod copy;
mod cq;
mod cq_ex;
mod dc;
mod destroyed;
mod device;
mod dm;
mod event;
mod execute;
mod fault;
mod flow;
mod handle;
mod late;
mod loader;
mod mr;
mod multicast;
mod mw;
mod pd;
mod post;
mod profile;
mod qp;
mod queue;
mod request;
mod slab;
mod srq;
mod state;
mod td;
mod test_api;
mod transmit;
mod unconnected;
mod window;
mod wr;
mod xrc;

pub use fault::{PostFault, Queue, Verb};
pub use profile::{
    AfterDestroy, ErrorStatePosts, NotReady, Overrun, Profile, Provider, SendOrder, Transport,
    UnconnectedPosts,
};
pub use queue::VENDOR_ERROR;
pub use test_api::{Fake, Live};

/// Refers to every entry point, so that the linker includes all of them. Otherwise some calls would
/// reach the real libibverbs.
fn keep_entry_points() {
    std::hint::black_box([
        ah::ENTRY_POINTS,
        channel::ENTRY_POINTS,
        context::ENTRY_POINTS,
        cq::ENTRY_POINTS,
        dc::ENTRY_POINTS,
        device::ENTRY_POINTS,
        event::ENTRY_POINTS,
        loader::ENTRY_POINTS,
        mr::ENTRY_POINTS,
        multicast::ENTRY_POINTS,
        pd::ENTRY_POINTS,
        qp::ENTRY_POINTS,
        srq::ENTRY_POINTS,
    ]);
}

/// Sets the calling thread's `errno`.
fn set_errno(errno: i32) {
    // SAFETY: the location belongs to the calling thread and is always valid.
    unsafe { *libc::__errno_location() = errno }
}

/// Sets `errno` and returns NULL.
fn null<T>(errno: i32) -> *mut T {
    set_errno(errno);
    std::ptr::null_mut()
}
