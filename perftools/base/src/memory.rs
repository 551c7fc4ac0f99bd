//! Memory whose size a peer or the user chooses. It must leave room for small allocations: if one
//! of them fails, Rust aborts the process.

use std::fs;

use nix::libc::RLIM_INFINITY;
use nix::sys::resource::{Resource, getrlimit};

use crate::error::{Error, Result};
use crate::units::Size;

/// Memory in bytes that must stay free for small allocations.
const RESERVE: u64 = 2 << 20;
/// Advice to a user whose test needs too much memory.
const HELP: &str = "set --msg-size (-m), --depth or --threads lower";

/// Makes all threads share one heap if the address space of this process is limited. glibc reserves
/// up to 128 MiB of it for the heap of a thread, so allocations of other threads could fail.
pub fn share_heap_if_limited() {
    if limit().is_some() {
        ibverbs::set_max_heaps(1);
    }
}

/// Returns a buffer of `len` zero bytes.
///
/// # Errors
/// Returns an error if there is not enough memory for it and for small allocations. A plain
/// allocation would abort the process.
pub fn zeroed(len: usize) -> Result<Vec<u8>> {
    check_room("a buffer", len as u64)?;
    let mut bytes = Vec::new();
    bytes
        .try_reserve_exact(len)
        .map_err(|_| not_enough("a buffer", len as u64))?;
    bytes.resize(len, 0);
    Ok(bytes)
}

/// Checks that memory of `len` bytes for `what` leaves room for small allocations.
pub fn check_room(what: &str, len: u64) -> Result<()> {
    if let Some(left) = address_space_left() {
        return check(left, what, len);
    }
    // Without a limit, an allocation fails only if the kernel does not overcommit memory.
    let needed = usize::try_from(len.saturating_add(RESERVE)).unwrap_or(usize::MAX);
    Vec::<u8>::new()
        .try_reserve_exact(needed)
        .map_err(|_| not_enough(what, len))
}

/// Checks that memory of `len` bytes and the reserve fit into the address space that is left. An
/// allocation would take the memory away from the other threads for a moment.
fn check(left: u64, what: &str, len: u64) -> Result<()> {
    if left >= len.saturating_add(RESERVE) {
        return Ok(());
    }
    Err(Error::limit(format!(
        "cannot allocate {what} of {} and a reserve of {}: the limit of the address space leaves {}",
        Size(len),
        Size(RESERVE),
        Size(left)
    ))
    .with_help(format!("raise the limit (`ulimit -v`), or {HELP}")))
}

/// Returns the limit of the address space in bytes, if there is one.
fn limit() -> Option<u64> {
    let (limit, _) = getrlimit(Resource::RLIMIT_AS).ok()?;
    (limit != RLIM_INFINITY).then_some(limit)
}

/// Returns the bytes of address space that the limit of the process leaves. `None` if there is no
/// limit.
fn address_space_left() -> Option<u64> {
    let limit = limit()?;
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let size = status
        .lines()
        .find_map(|line| line.strip_prefix("VmSize:")?.trim().strip_suffix(" kB"))?;
    Some(limit.saturating_sub(size.parse::<u64>().ok()? << 10))
}

fn not_enough(what: &str, len: u64) -> Error {
    Error::limit(format!(
        "cannot allocate {what} of {}: not enough memory",
        Size(len)
    ))
    .with_help(HELP)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_allocation_is_an_error() {
        assert_eq!(zeroed(3).unwrap(), [0; 3]);
        let error = zeroed(isize::MAX as usize).unwrap_err();
        assert!(
            error.to_string().contains("cannot allocate a buffer of"),
            "{error}"
        );
    }

    #[test]
    fn a_limit_leaves_room_for_small_allocations() {
        assert!(check(RESERVE + 4096, "a buffer", 4096).is_ok());
        let error = check(RESERVE + 4095, "a buffer", 4096).unwrap_err();
        assert!(error.to_string().contains("leaves"), "{error}");
    }
}
