//! Byte patterns. Every buffer has a pattern of its own, so a misplaced byte is noticed.

use crate::violation::Violation;

/// Returns word `index` of a pattern.
fn word(pattern: u64, index: usize) -> [u8; 8] {
    let mut mixed = (pattern ^ index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^= mixed >> 29;
    mixed.wrapping_mul(0xbf58_476d_1ce4_e5b9).to_le_bytes()
}

/// Fills memory with a pattern.
pub(crate) fn fill(pattern: u64, bytes: &mut [u8]) {
    for (index, chunk) in bytes.chunks_mut(8).enumerate() {
        chunk.copy_from_slice(&word(pattern, index)[..chunk.len()]);
    }
}

/// Returns the first bytes of a pattern.
pub(crate) fn bytes(pattern: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    fill(pattern, &mut bytes);
    bytes
}

/// Compares memory with the expected bytes.
pub(crate) fn check(what: &str, found: &[u8], expected: &[u8]) -> Result<(), Violation> {
    if found == expected {
        return Ok(());
    }
    if found.len() != expected.len() {
        let (found, expected) = (found.len(), expected.len());
        return Err(Violation(format!(
            "{what}: {found} bytes, expected {expected}"
        )));
    }
    let differing = found.iter().zip(expected).filter(|(a, b)| a != b).count();
    let at = found
        .iter()
        .zip(expected)
        .position(|(a, b)| a != b)
        .unwrap_or(0);
    Err(Violation(format!(
        "{what}: {differing} of {} bytes differ, the first at {at}: {:02x?}, expected {:02x?}",
        found.len(),
        &found[at..found.len().min(at + 8)],
        &expected[at..found.len().min(at + 8)],
    )))
}

/// Checks that each byte is that of one of two contents, before or after a transfer.
pub(crate) fn check_either(
    what: &str,
    found: &[u8],
    old: &[u8],
    new: &[u8],
) -> Result<(), Violation> {
    let wrong = (0..found.len()).find(|&at| found[at] != old[at] && found[at] != new[at]);
    match wrong {
        None => Ok(()),
        Some(at) => Err(Violation(format!(
            "{what}: byte {at} of {} is {:#04x}, expected {:#04x} (before the transfer) or {:#04x} (after it)",
            found.len(),
            found[at],
            old[at],
            new[at],
        ))),
    }
}
