//! Fields by their place in bits, as the tables of the InfiniBand specification give them: most
//! significant bit first.

use std::net::Ipv6Addr;

use crate::identity::{Guid, Lid};

/// The `width` bits from `offset` on; bits beyond the end are 0.
///
/// `width` is at most 120, or 128 at a byte's edge.
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

/// Sets the `width` bits from `offset` on to the low bits of `value`; bits beyond the end are
/// dropped.
pub(crate) fn put(data: &mut [u8], offset: usize, width: usize, value: u128) {
    for bit in 0..width {
        let place = offset + bit;
        let Some(byte) = data.get_mut(place / 8) else {
            return;
        };
        let mask = 0x80_u8 >> (place % 8);
        if value >> (width - 1 - bit) & 1 == 1 {
            *byte |= mask;
        } else {
            *byte &= !mask;
        }
    }
}

/// What a field can be read as.
pub(crate) trait Field: Copy {
    /// From the field's bits.
    fn from_bits(bits: u128) -> Self;
}

macro_rules! integer_field {
    ($($integer:ty),*) => { $(
        impl Field for $integer {
            #[allow(clippy::cast_possible_truncation, reason = "the field's width is at most the type's, checked by record!")]
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

impl Field for Ipv6Addr {
    fn from_bits(bits: u128) -> Self {
        Self::from_bits(bits)
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

/// A record of `bytes` bytes: its fields are read from their bits, whose places are checked when
/// this is compiled.
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
            /// Its length in bytes.
            pub const LEN: usize = $bytes;

            /// The attribute that it is the content of.
            pub const ATTR: crate::mad::AttrId = $attr;

            /// The record that these bytes begin with; `None` when they are too few.
            pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
                bytes.first_chunk().map(|bytes| Self(*bytes))
            }

            /// Its bytes, as on the wire.
            pub fn as_bytes(&self) -> &[u8; $bytes] {
                &self.0
            }

            $(
                $(#[$fmeta])*
                pub fn $field(&self) -> $type {
                    #[allow(clippy::int_plus_one, reason = "places and widths are written as the specification writes them")]
                    const {
                        assert!($offset + $width <= $bytes * 8, "beyond the record");
                        assert!($width <= 8 * size_of::<$type>(), "wider than its type");
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

/// A value of the wire with named constants, readable as a field.
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
    fn bits_are_counted_from_the_most_significant() {
        let data = [0b1010_0101, 0xff, 0x00, 0x12];
        assert_eq!(get(&data, 0, 4), 0b1010);
        assert_eq!(get(&data, 4, 8), 0b0101_1111);
        assert_eq!(get(&data, 16, 16), 0x0012);
        assert_eq!(get(&data, 24, 16), 0x1200, "beyond the end are zeros");
        assert_eq!(get(&[0xff; 16], 0, 128), u128::MAX);
    }

    #[test]
    fn what_was_put_is_what_one_gets() {
        for offset in 0..40 {
            for width in 1..=64 {
                let mut data = [0x5a; 16];
                let value = 0x1234_5678_9abc_def0_u128 & ((1 << width) - 1);
                put(&mut data, offset, width, value);
                assert_eq!(get(&data, offset, width), value, "{width} bits at {offset}");
                assert_eq!(
                    get(&data, 0, offset),
                    get(&[0x5a; 16], 0, offset),
                    "what lies before is kept"
                );
                let rest = 120 - offset - width;
                assert_eq!(
                    get(&data, offset + width, rest.min(56)),
                    get(&[0x5a; 16], offset + width, rest.min(56)),
                    "what lies behind is kept"
                );
            }
        }
    }
}
