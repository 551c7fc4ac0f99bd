//! Bit fields of records. Offsets and widths are in bits, most significant bit first, as in the
//! tables of the InfiniBand specification.

use rdma_types::{Gid, Guid, Lid};

/// Returns the `width` bits at `offset`; bits beyond the end are 0.
///
/// `width` is at most 120, or 128 if the field is byte-aligned.
pub(crate) fn get(data: &[u8], offset: usize, width: usize) -> u128 {
    let end = offset + width;
    let mut value = 0_u128;
    for index in offset / 8..end.div_ceil(8) {
        value = value << 8 | u128::from(data.get(index).copied().unwrap_or(0));
    }
    let value = value >> (end.next_multiple_of(8) - end);
    if width >= 128 {
        value
    } else {
        value & ((1 << width) - 1)
    }
}

/// Sets the `width` bits at `offset` to the low bits of `value`; bits beyond the end are dropped.
pub(crate) fn put(data: &mut [u8], offset: usize, width: usize, value: u128) {
    for index in 0..width {
        let position = offset + index;
        let Some(byte) = data.get_mut(position / 8) else {
            return;
        };
        let mask = 0x80_u8 >> (position % 8);
        if value >> (width - 1 - index) & 1 == 1 {
            *byte |= mask;
        } else {
            *byte &= !mask;
        }
    }
}

/// A type that a bit field can be read as.
pub(crate) trait Field: Copy {
    /// Converts the bits of the field.
    fn from_bits(bits: u128) -> Self;
}

macro_rules! integer_field {
    ($($integer:ty),*) => { $(
        impl Field for $integer {
            #[allow(clippy::cast_possible_truncation, reason = "record! checks that the field is no wider than the type")]
            fn from_bits(bits: u128) -> Self {
                bits as Self
            }
        }
    )* };
}

integer_field!(u8, u16, u32, u64);

impl Field for bool {
    fn from_bits(bits: u128) -> Self {
        bits != 0
    }
}

impl Field for Gid {
    fn from_bits(bits: u128) -> Self {
        Self(bits.to_be_bytes())
    }
}

impl Field for Lid {
    fn from_bits(bits: u128) -> Self {
        Self(u16::from_bits(bits))
    }
}

impl Field for Guid {
    fn from_bits(bits: u128) -> Self {
        Self(u64::from_bits(bits))
    }
}

/// Defines a record of a fixed number of bytes with a getter for each field, written as
/// `name: type = offset + width` in bits. The bounds are checked at compile time.
macro_rules! record {
    (
        $(#[$meta:meta])*
        pub struct $name:ident: $bytes:literal bytes, attribute $attr:expr, {
            $( $(#[$fmeta:meta])* $field:ident: $type:ty = $offset:literal + $width:literal, )*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq)]
        pub struct $name([u8; $bytes]);

        impl $name {
            /// Length in bytes.
            pub const LEN: usize = $bytes;

            /// Identifier of the attribute with this content.
            pub const ATTR: crate::mad::AttrId = $attr;

            /// Creates a record from the first [`LEN`](Self::LEN) bytes. Returns `None` if there
            /// are fewer.
            pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
                bytes.first_chunk().map(|bytes| Self(*bytes))
            }

            /// Returns the bytes as on the wire.
            pub fn as_bytes(&self) -> &[u8; $bytes] {
                &self.0
            }

            $(
                $(#[$fmeta])*
                pub fn $field(&self) -> $type {
                    #[allow(clippy::int_plus_one, reason = "offset and width are literals of the specification")]
                    const {
                        assert!($offset + $width <= $bytes * 8, "the field exceeds the record");
                        assert!($width <= 8 * size_of::<$type>(), "the field exceeds its type");
                    }
                    <$type as crate::mad::bits::Field>::from_bits(crate::mad::bits::get(&self.0, $offset, $width))
                }
            )*
        }

        impl Default for $name {
            fn default() -> Self {
                Self([0; $bytes])
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($name)) $( .field(stringify!($field), &self.$field()) )* .finish()
            }
        }
    };
}

/// Implements [`Field`] for types that `c_value!` defines.
macro_rules! field_value {
    ($($name:ident($raw:ty)),* $(,)?) => { $(
        impl crate::mad::bits::Field for $name {
            fn from_bits(bits: u128) -> Self {
                Self(<$raw as crate::mad::bits::Field>::from_bits(bits))
            }
        }
    )* };
}

pub(crate) use {field_value, record};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_count_from_the_most_significant() {
        let data = [0b1010_0101, 0xff, 0x00, 0x12];
        assert_eq!(get(&data, 0, 4), 0b1010);
        assert_eq!(get(&data, 4, 8), 0b0101_1111);
        assert_eq!(get(&data, 16, 16), 0x0012);
        assert_eq!(get(&data, 24, 16), 0x1200, "zeros beyond the end");
        assert_eq!(get(&[0xff; 16], 0, 128), u128::MAX);
    }

    #[test]
    fn bits_become_the_type_of_their_field() {
        assert_eq!(Lid::from_bits(0x1234), Lid(0x1234));
        assert_eq!(Guid::from_bits(0x1234), Guid(0x1234));
        assert_eq!(Gid::from_bits(1), Gid::from_parts(0, Guid(1)));
        assert!(bool::from_bits(1) && !bool::from_bits(0));
    }

    #[test]
    fn put_changes_only_its_field() {
        let background = [0x5a; 16];
        for offset in 0..40 {
            for width in 1..=64 {
                let mut data = background;
                let value = 0x1234_5678_9abc_def0_u128 & ((1 << width) - 1);
                put(&mut data, offset, width, value);
                assert_eq!(get(&data, offset, width), value, "{width} bits at {offset}");
                assert_eq!(
                    get(&data, 0, offset),
                    get(&background, 0, offset),
                    "bits before the field"
                );
                let (end, rest) = (offset + width, (120 - offset - width).min(56));
                assert_eq!(
                    get(&data, end, rest),
                    get(&background, end, rest),
                    "bits after the field"
                );
            }
        }
    }
}
