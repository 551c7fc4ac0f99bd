//! A model of the kernel's verbs interface and of an RDMA adapter, in user space.
//!
//! Unmodified libibverbs, libmlx5 and libefa run on it, without an adapter, a kernel driver or
//! privileges. See the README of the crate.

mod abi;
mod adapters;
mod attr;
mod channels;
mod clock;
mod cm;
mod descriptors;
mod dmabuf;
mod errno;
mod fault;
mod interpose;
mod keys;
mod memory;
mod model;
mod network;
mod nic;
mod options;
mod preload;
mod qp_state;
mod syscall;
mod sysfs;
mod table;
mod test_files;
mod trace;
mod uverbs;

pub use fault::DeviceFault;
pub use memory::Part;
pub use network::fault::{Fault, FaultRule, Nak};
pub use nic::mlx5::engine::{self, Engine};
pub use options::{Device, Drive, Link, Options};
pub use table::Table;

/// Starts the model in this process. Further calls have no effect.
///
/// Call it before the first verb: libibverbs looks for devices only once. The call changes the
/// environment variable `SYSFS_PATH`, so no other thread may use the environment at the same time.
///
/// # Errors
/// Fails if the files that stand for sysfs cannot be written to the temporary directory.
pub fn start(options: Options) -> std::io::Result<()> {
    model::start(options).map(|_| ())
}

/// Runs the adapter for a moment, in step mode. Returns `true` if there was work.
///
/// A step starts posted requests, delivers packets that have arrived, and sends events.
pub fn step() -> bool {
    model::step(&mut model::lock())
}

/// Runs the adapter until it has no work left, in step mode. Requests that wait for a timer stay.
pub fn settle() {
    while step() {}
}

/// Orders a fault of the network. It has no effect before [`start`].
pub fn inject(rule: FaultRule) {
    inject_at(0, rule);
}

/// Orders a fault of the network of one adapter, from 0.
pub fn inject_at(adapter: usize, rule: FaultRule) {
    if let Some(model) = model::lock().get_mut(adapter) {
        model.shared.network.faults.add(rule);
    }
}

/// Orders a fault of an adapter, from 0, for the next step.
pub fn fail(adapter: usize, fault: DeviceFault) {
    if let Some(model) = model::lock().get_mut(adapter) {
        model.fail(fault);
    }
}

/// Ends the faults of an adapter, from 0. After a fatal error, programs must open it again.
pub fn repair(adapter: usize) {
    if let Some(model) = model::lock().get_mut(adapter) {
        model.repair();
    }
}

/// Returns the time of the adapters in nanoseconds. In step mode, a step takes 1 µs.
pub fn now() -> u64 {
    model::lock()
        .first()
        .map_or(0, |model| model.shared.clock.now())
}
