//! A random number generator with a fixed seed, for reproducible fuzz tests.

/// The xorshift64* generator.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Creates a generator.
    ///
    /// # Panics
    /// Panics if `seed` is 0.
    pub fn new(seed: u64) -> Self {
        assert_ne!(seed, 0, "xorshift needs a seed other than 0");
        Self(seed)
    }

    /// Returns the next number. Its high bits are of better quality than its low bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Returns a number less than `limit`.
    ///
    /// # Panics
    /// Panics if `limit` is 0.
    pub fn below(&mut self, limit: usize) -> usize {
        let limit = u64::try_from(limit).expect("64 bits");
        usize::try_from((self.next_u64() >> 16) % limit).expect("less than a usize")
    }
}
