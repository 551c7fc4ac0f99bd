//! Buffers whose size a peer chooses.

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
    reserve(HEADROOM).map(drop)
}

fn reserve(len: usize) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(len).map_err(|_| {
        Error::limit(format!(
            "cannot allocate a buffer of {}: not enough memory",
            Size(len as u64)
        ))
        .with_help("set --msg-size (-m), --depth or --threads lower")
    })?;
    Ok(bytes)
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
}
