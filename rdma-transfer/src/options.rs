//! Options of an engine.

use rdma_types::setters;

/// Options of an [`Engine`](crate::Engine).
///
/// # Example
/// ```
/// use rdma_transfer::EngineOptions;
/// let options = EngineOptions::new().queue_pairs(4).busy_poll(true);
/// assert_eq!(options.stripe, 256 << 10);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EngineOptions {
    /// Port of each device, from 1. Default: `1`.
    pub port_num: u8,
    /// Number of queue pairs for each peer on each device, at least 1. Default: `1`.
    pub queue_pairs: usize,
    /// Maximum length of one request in bytes, at least 1. Longer ranges are divided, and the
    /// pieces distributed over the queue pairs. The maximum message of a port limits it. Default:
    /// `262144`.
    pub stripe: usize,
    /// Maximum number of requests in flight on each queue pair, at least 2. Further requests wait
    /// in the engine. Default: `128`.
    pub max_send_wr: u32,
    /// Number of immediates that a queue pair can receive before the engine has processed the
    /// first one, at least 1. A peer that sends more waits. Default: `128`.
    pub max_recv_wr: u32,
    /// Acknowledgement timeout: 4.096 µs × 2^timeout, 1 to 31. Default: `14` (67 ms).
    pub timeout: u8,
    /// Retries without an acknowledgement, 0 to 6. A peer that does not answer is disconnected
    /// after the last one. Default: `6`.
    pub retry_cnt: u8,
    /// `true` to poll without sleeping. Each device then occupies a processor. Default: `false`.
    pub busy_poll: bool,
}

impl EngineOptions {
    /// Returns the default options.
    pub const fn new() -> Self {
        Self {
            port_num: 1,
            queue_pairs: 1,
            stripe: 262_144,
            max_send_wr: 128,
            max_recv_wr: 128,
            timeout: 14,
            retry_cnt: 6,
            busy_poll: false,
        }
    }
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self::new()
    }
}

setters! {
    EngineOptions {
        port_num: u8,
        queue_pairs: usize,
        stripe: usize,
        max_send_wr: u32,
        max_recv_wr: u32,
        timeout: u8,
        retry_cnt: u8,
        busy_poll: bool,
    }
}
