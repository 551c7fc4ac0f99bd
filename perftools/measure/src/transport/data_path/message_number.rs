//! Message numbers in the 32 bits of immediate data.

/// Returns the low 32 bits of a message number, which are sent as immediate data.
#[allow(clippy::cast_possible_truncation)] // `from_low_bits` restores the other bits.
pub(super) fn low_bits(n: u64) -> u32 {
    n as u32
}

/// Returns the message number near `expected` that has these low bits; `None` if there is none.
// The difference of the low bits is a signed number.
#[allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap)]
pub(super) fn from_low_bits(low: u32, expected: u64) -> Option<u64> {
    expected.checked_add_signed(i64::from(low.wrapping_sub(expected as u32) as i32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_is_restored_from_its_low_bits() {
        for n in [0_u64, 1, 1000, u64::from(u32::MAX), 1 << 32, (1 << 40) + 7] {
            for offset in [-1000_i64, -1, 0, 1, 1000] {
                let Some(expected) = n.checked_add_signed(offset) else {
                    continue;
                };
                assert_eq!(from_low_bits(low_bits(n), expected), Some(n));
            }
        }
        assert_eq!(from_low_bits(u32::MAX, 0), None);
    }
}
