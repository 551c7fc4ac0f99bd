//! A verbs provider written in Rust. Linked into a test or benchmark it takes libibverbs' place.
//!
//! # How it takes its place
//!
//! It defines the entry points of libibverbs that this workspace calls, unmangled. A definition in
//! the executable wins over one in a shared library, and Miri, which has no shared libraries, finds
//! nothing else: `rdma-sys` and `ibverbs` run unchanged on top. Nothing of them knows of the fake.
//! [`Fake::new`] adds a device, which the crates above find by its name; it refers to every entry
//! point, so that the linker takes them all or none.
//!
//! # How it is built
//!
//! ```text
//! control  profile  fault          what a test sees: make a device, choose its manners, break it, look into it
//! device  context  pd  td  mr  mw  ah  channel  event  the entry points, one file an object
//! cq  cq_ex  qp  srq  xrc  flow  post  wr   (classic and extended tables)
//! world  request  slab  queue  wire  unconnected  window  copy   the device: plain safe data behind one lock; `copy` moves the bytes
//! ```
//!
//! The C structures are thin handles: a device pointer and a number. All that they stand for is in
//! the `World` of their device, in safe Rust. `unsafe` is left where C's pointers come in (handles,
//! lists of requests) and where bytes move: as with a real device those moves go through numbers,
//! `ptr::with_exposed_provenance`, so Miri checks that the memory of a request is allocated, that
//! no reference to it is in use, and that no thread races with it, when the "device" touches it.
//!
//! # What it does
//!
//! Loopback: reliable queue pairs of one device, connected by number (XRC too, where
//! [`Profile::more_verbs`] says so), and datagrams. A send is done when it is posted, unless the
//! device is [stalled](Fake::stall) or the receiver not ready. Whatever is against the rules of
//! verbs, such as an object destroyed before what depends on it, a key that names no region, or a
//! region deregistered with requests on it, is recorded as a violation, and fails the test when the
//! [`Fake`] is dropped.

#![allow(
    unsafe_code,
    reason = "it is the C side of an FFI: it takes and gives raw pointers throughout"
)]

mod ah;
mod channel;
mod context;
mod control;
mod copy;
mod cq;
mod cq_ex;
mod device;
mod event;
mod event_kind;
mod fault;
mod flow;
mod handle;
mod mr;
mod mw;
mod pd;
mod post;
mod profile;
mod qp;
mod queue;
mod request;
mod slab;
mod srq;
mod td;
mod thread;
mod unconnected;
mod window;
mod wire;
mod world;
mod wr;
mod xrc;

pub use control::{Fake, Live};
pub use fault::{PostFault, Queue, Verb};
pub use profile::{AfterDestroy, DeadPosts, NotReady, Profile};

/// Refers to every entry point, so that an executable that uses the crate has all of them: half a
/// library replaced would be none.
fn keep_entry_points() {
    std::hint::black_box(
        [
            device::entry_points(),
            context::entry_points(),
            channel::entry_points(),
        ]
        .concat(),
    );
    std::hint::black_box(
        [
            pd::entry_points(),
            mr::entry_points(),
            cq::entry_points(),
            qp::entry_points(),
        ]
        .concat(),
    );
    std::hint::black_box(
        [
            srq::entry_points(),
            ah::entry_points(),
            event::entry_points(),
        ]
        .concat(),
    );
}

/// Sets the calling thread's `errno`.
fn set_errno(errno: i32) {
    // SAFETY: the location belongs to the calling thread and is always valid.
    unsafe { *libc::__errno_location() = errno }
}

/// The convention "NULL and errno".
fn null<T>(errno: i32) -> *mut T {
    set_errno(errno);
    std::ptr::null_mut()
}
