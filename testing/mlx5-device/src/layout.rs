//! Fields of structures in the adapter's format: a string of bits, the most significant one first.
//!
//! Names, offsets and widths are those of the kernel's `include/linux/mlx5/mlx5_ifc.h`. Its names
//! of reserved fields (`reserved_at_20`) confirm the offsets.

/// A field of at most 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Field {
    offset: usize,
    width: usize,
}

impl Field {
    /// Describes a field by its offset and its width in bits.
    pub(crate) const fn new(offset: usize, width: usize) -> Self {
        assert!(width >= 1 && width <= 64);
        Self { offset, width }
    }

    /// Returns the same field of a structure that begins at a byte of another one.
    pub(crate) const fn at(self, byte: usize) -> Self {
        Self {
            offset: byte * 8 + self.offset,
            width: self.width,
        }
    }

    /// Returns the value in a structure.
    ///
    /// # Panics
    ///
    /// Panics if the structure ends before the field.
    pub(crate) fn get(self, structure: &[u8]) -> u64 {
        let bits = structure[self.bytes()]
            .iter()
            .fold(0, |bits, byte| bits << 8 | u128::from(*byte));
        u64::try_from(bits >> self.shift() & self.mask()).expect("a field has at most 64 bits")
    }

    /// Returns the value of a field of at most 32 bits.
    pub(crate) fn get32(self, structure: &[u8]) -> u32 {
        u32::try_from(self.get(structure)).expect("the field has at most 32 bits")
    }

    /// Sets the value in a structure.
    ///
    /// # Panics
    ///
    /// Panics if the structure ends before the field, or if the value has more bits than the field.
    pub(crate) fn set(self, structure: &mut [u8], value: u64) {
        assert!(
            u128::from(value) <= self.mask(),
            "{value:#x} has more than {} bits",
            self.width
        );
        let bytes = &mut structure[self.bytes()];
        let mut bits = bytes
            .iter()
            .fold(0, |bits, byte| bits << 8 | u128::from(*byte));
        bits = bits & !(self.mask() << self.shift()) | u128::from(value) << self.shift();
        let all = bits.to_be_bytes();
        bytes.copy_from_slice(&all[all.len() - bytes.len()..]);
    }

    /// Returns the bytes that contain the field, at most nine.
    const fn bytes(self) -> std::ops::Range<usize> {
        self.offset / 8..(self.offset + self.width).div_ceil(8)
    }

    /// Returns the number of bits after the field in its last byte.
    const fn shift(self) -> usize {
        (8 - (self.offset + self.width) % 8) % 8
    }

    const fn mask(self) -> u128 {
        (1 << self.width) - 1
    }
}

/// Declares structures as modules of fields: `NAME = offset, width;` in bits.
macro_rules! structures {
    ($($(#[$doc:meta])* $name:ident { $($field:ident = $offset:literal, $width:literal;)+ })+) => {
        $($(#[$doc])* pub(crate) mod $name {
            use crate::layout::Field;
            $(pub(crate) const $field: Field = Field::new($offset, $width);)+
        })+
    };
}
pub(crate) use structures;

#[cfg(test)]
mod tests {
    use super::Field;

    #[test]
    fn a_field_is_read_and_written_inside_its_bytes() {
        let field = Field::new(0xc3, 5);
        let mut structure = [0xff; 64];
        field.set(&mut structure, 0b0_1010);
        assert_eq!(structure[24], 0b1110_1010);
        assert_eq!(field.get(&structure), 0b0_1010);
        assert_eq!((structure[23], structure[25]), (0xff, 0xff));
    }

    #[test]
    fn a_field_crosses_bytes_in_big_endian_order() {
        let mut structure = [0; 16];
        Field::new(0x48, 24).set(&mut structure, 0x12_3456);
        assert_eq!(structure[8..12], [0, 0x12, 0x34, 0x56]);
        Field::new(4, 64).set(&mut structure, u64::MAX);
        assert_eq!(
            structure[0..10],
            [0x0f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xf0, 0x12]
        );
        assert_eq!(Field::new(4, 64).get(&structure), u64::MAX);
    }

    #[test]
    fn a_nested_field_is_at_the_byte_of_its_structure() {
        assert_eq!(Field::new(0x14, 4).at(0x10), Field::new(0x94, 4));
    }

    #[test]
    #[should_panic(expected = "more than 4 bits")]
    fn a_value_must_fit_into_its_field() {
        Field::new(0, 4).set(&mut [0; 4], 16);
    }
}
