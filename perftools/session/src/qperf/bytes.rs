//! Encoding and decoding of the fields of a message: little-endian numbers and padded strings.

use base::peer_text::printable;

/// A buffer of `N` bytes that is filled field by field.
#[derive(Debug)]
pub(super) struct Writer<const N: usize> {
    bytes: [u8; N],
    at: usize,
}

impl<const N: usize> Writer<N> {
    pub(super) fn new() -> Self {
        Self {
            bytes: [0; N],
            at: 0,
        }
    }

    fn put(mut self, field: &[u8]) -> Self {
        let end = (self.at + field.len()).min(N);
        self.bytes[self.at..end].copy_from_slice(&field[..end - self.at]);
        self.at = end;
        self
    }

    pub(super) fn u16(self, value: u16) -> Self {
        self.put(&value.to_le_bytes())
    }

    pub(super) fn u32(self, value: u32) -> Self {
        self.put(&value.to_le_bytes())
    }

    pub(super) fn u64(self, value: u64) -> Self {
        self.put(&value.to_le_bytes())
    }

    /// Writes a string as 64 bytes: at most 63 bytes of text, then zeros.
    pub(super) fn text(self, text: &str) -> Self {
        let mut field = [0; 64];
        let mut len = text.len().min(63);
        while !text.is_char_boundary(len) {
            len -= 1;
        }
        field[..len].copy_from_slice(&text.as_bytes()[..len]);
        self.put(&field)
    }

    pub(super) fn finish(self) -> [u8; N] {
        self.bytes
    }
}

/// Reads fields from a byte slice. Fields beyond its end are zero.
#[derive(Debug)]
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let mut field = [0; N];
        let len = N.min(self.0.len());
        field[..len].copy_from_slice(&self.0[..len]);
        self.0 = &self.0[len..];
        field
    }

    pub(super) fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.take())
    }

    pub(super) fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.take())
    }

    pub(super) fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.take())
    }

    /// Reads a string of 64 bytes up to its first zero. The result is safe to print.
    pub(super) fn text(&mut self) -> String {
        let field: [u8; 64] = self.take();
        let end = field.iter().position(|b| *b == 0).unwrap_or(64);
        printable(&String::from_utf8_lossy(&field[..end]))
    }
}
