//! The start of a preloaded model, and functions for programs that load it.
#![allow(unsafe_code, reason = "a constructor and an exported function")]
#![allow(unreachable_pub, reason = "the linker finds the functions by name")]

use std::ffi::{c_int, c_void};

use crate::errno::Errno;
use crate::memory::Copier;
use crate::options::Options;
use crate::{dmabuf, model};

/// Starts the model if the environment asks for it.
extern "C" fn construct() {
    if let Some(options) = Options::from_environment()
        && let Err(error) = model::start(options)
    {
        eprintln!("nic-model: writing the files of sysfs: {error}");
        std::process::exit(2);
    }
}

/// Entry of the list of constructors.
// SAFETY: the loader calls the functions of this section before `main`, on the only thread.
#[unsafe(link_section = ".init_array")]
#[used]
static CONSTRUCTOR: extern "C" fn() = construct;

/// Runs the adapter for a moment, in step mode. Returns 1 if there was work, else 0.
#[unsafe(no_mangle)]
pub extern "C" fn nic_model_step() -> i32 {
    i32::from(crate::step())
}

/// State of the adapter, for a program that counts the cost of its own code.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    /// Requests that send queues have started.
    pub sent: u64,
    /// Requests of peers that were executed.
    pub received: u64,
    /// 1 if no posted send is unfinished.
    pub is_idle: i32,
    /// 1 if the completion queue has unread entries.
    pub has_completions: i32,
}

/// Returns the state of the adapter, and of the completion queue with this handle.
#[unsafe(no_mangle)]
pub extern "C" fn nic_model_progress(cq_handle: u32) -> Progress {
    let model = model::lock();
    let Some(model) = model.first() else {
        return Progress::default();
    };
    Progress {
        sent: model.shared.sent,
        received: model.shared.received,
        is_idle: i32::from(model.is_idle()),
        has_completions: i32::from(model.has_completions(cq_handle)),
    }
}

/// Makes the adapter copy the memory of a dma-buf with two functions, for memory that the processor
/// cannot map. `address` is the address of its first byte for these functions, which return 0 if
/// they succeed. The memory stays allocated while it is registered. Returns 0, or an error number.
#[unsafe(no_mangle)]
pub extern "C" fn nic_model_announce_dmabuf(
    fd: c_int,
    address: u64,
    read: unsafe extern "C" fn(*mut c_void, u64, usize) -> c_int,
    write: unsafe extern "C" fn(u64, *const c_void, usize) -> c_int,
) -> c_int {
    dmabuf::announce(fd, address, Copier { read, write })
        .map_or_else(|errno: Errno| errno.0, |()| 0)
}
