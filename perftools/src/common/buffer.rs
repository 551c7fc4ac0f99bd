//! Buffers whose size a peer chooses.

use std::fs;

use nix::libc::RLIM_INFINITY;
use nix::sys::resource::{Resource, getrlimit};

use super::error::{Error, Result};
use super::units::Size;

/// Memory in bytes that must be free beside the buffers. If a small allocation fails, Rust aborts
/// the process.
const HEADROOM: usize = 2 << 20;

/// Returns a buffer of `len` zero bytes.
///
/// # Errors
/// Returns an error if there is not enough memory for it and for small allocations. A plain
/// allocation would abort the process.
pub fn zeroed(len: usize) -> Result<Vec<u8>> {
    if let Some(left) = address_space_left() {
        check(left, len)?;
    }
    let mut bytes = reserve(len)?;
    check_headroom()?;
    bytes.resize(len, 0);
    Ok(bytes)
}

/// Checks that small allocations will succeed.
///
/// # Errors
/// Returns an error if there is not enough memory for them.
pub fn check_headroom() -> Result<()> {
    match address_space_left() {
        Some(left) => check(left, 0).map_err(|_| not_enough(HEADROOM)),
        None => reserve(HEADROOM).map(drop),
    }
}

/// Checks that `len` bytes and the headroom fit into the address space that is left. To try it with
/// an allocation would take the memory away from the other threads for a moment.
fn check(left: u64, len: usize) -> Result<()> {
    if left < (len as u64).saturating_add(HEADROOM as u64) {
        return Err(not_enough(len));
    }
    Ok(())
}

/// Returns the bytes of address space that the limit of the process leaves. `None` if there is no
/// limit.
fn address_space_left() -> Option<u64> {
    let (limit, _) = getrlimit(Resource::RLIMIT_AS).ok()?;
    if limit == RLIM_INFINITY {
        return None;
    }
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let size = status
        .lines()
        .find_map(|line| line.strip_prefix("VmSize:")?.trim().strip_suffix(" kB"))?;
    Some(limit.saturating_sub(size.parse::<u64>().ok()? << 10))
}

fn reserve(len: usize) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(len).map_err(|_| not_enough(len))?;
    Ok(bytes)
}

fn not_enough(len: usize) -> Error {
    Error::limit(format!(
        "cannot allocate a buffer of {}: not enough memory",
        Size(len as u64)
    ))
    .with_help("set --msg-size (-m), --depth or --threads lower")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_allocation_is_an_error() {
        assert_eq!(zeroed(3).unwrap(), [0; 3]);
        let error = zeroed(isize::MAX as usize).unwrap_err();
        assert!(error.to_string().contains("not enough memory"), "{error}");
    }

    #[test]
    fn a_limit_leaves_room_for_small_allocations() {
        let headroom = HEADROOM as u64;
        assert!(check(headroom + 4096, 4096).is_ok());
        assert!(check(headroom + 4095, 4096).is_err());
    }
}
