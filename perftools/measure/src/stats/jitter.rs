//! The jitter of datagrams, as in RFC 3550.

/// The jitter of a sequence of datagrams. The clocks of the two ends need not agree, because only
/// differences between transit times count.
#[derive(Clone, Copy, Debug, Default)]
pub struct Jitter {
    /// Transit time of the latest datagram in nanoseconds, plus the unknown offset of the clocks.
    transit: Option<i64>,
    nanos: f64,
}

impl Jitter {
    /// Adds a datagram that was sent and that arrived at these times, in nanoseconds of the clocks
    /// of the sender and of the receiver.
    #[allow(clippy::cast_precision_loss)] // Nanoseconds below 2^53.
    pub(crate) fn add(&mut self, sent: u64, arrived: u64) {
        let transit = arrived.wrapping_sub(sent) as i64;
        if let Some(previous) = self.transit.replace(transit) {
            let difference = transit.wrapping_sub(previous).unsigned_abs() as f64;
            self.nanos += (difference - self.nanos) / 16.0;
        }
    }

    /// Returns the jitter in nanoseconds; `None` for fewer than two datagrams.
    pub(crate) fn nanos(&self) -> Option<f64> {
        self.transit.map(|_| self.nanos)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constant_transit_times_have_no_jitter() {
        let mut jitter = Jitter::default();
        assert_eq!(jitter.nanos(), None);
        // The clock of the receiver is behind that of the sender.
        for n in 0..100 {
            jitter.add(1_000_000 + n * 1000, n * 1000);
        }
        assert_eq!(jitter.nanos(), Some(0.0));
    }

    #[test]
    fn alternating_transit_times_approach_their_difference() {
        let mut jitter = Jitter::default();
        for n in 0..400 {
            jitter.add(n * 1000, n * 1000 + (n % 2) * 160);
        }
        let nanos = jitter.nanos().unwrap();
        assert!((nanos - 160.0).abs() < 0.1, "{nanos}");
    }
}
