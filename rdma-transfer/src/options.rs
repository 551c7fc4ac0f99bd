//! Options of an engine and of a transfer.

use std::time::Duration;

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
    /// Number of queue pairs for each peer on each device, at least 1, and at most `max_paths` on
    /// all devices together. The side with more of them decides for both. Default: `1`.
    pub queue_pairs: usize,
    /// Maximum number of paths to each peer, at most 4096. A peer that needs more is disconnected.
    /// Each path has a queue pair, and so limits the memory that a peer can make this engine use.
    /// Default: `128`.
    pub max_paths: usize,
    /// Maximum number of regions that each peer can [offer](crate::Peer::offer). A peer that offers
    /// more, or that sends new keys for 16 times as many after it has opened its devices again, is
    /// disconnected. Default: `4096`.
    pub max_regions: usize,
    /// Maximum length of one request in bytes, at least 1. Longer ranges are divided, and the
    /// pieces distributed over the queue pairs. The maximum message of a port limits it. Default:
    /// `262144`.
    pub stripe: usize,
    /// Maximum number of requests in flight on each queue pair, 2 to 4096. Further requests wait in
    /// the engine. Default: `128`.
    pub max_send_wr: u32,
    /// Number of notices that a queue pair can receive before the engine has processed the first
    /// one, 1 to 4096. A peer that sends more waits. Default: `128`.
    pub max_recv_wr: u32,
    /// Acknowledgement timeout: 4.096 µs × 2^timeout, 1 to 31. Ignored over iWARP. Default: `14`
    /// (67 ms).
    pub timeout: u8,
    /// Retries without an acknowledgement, 0 to 6. The path fails after the last one. Ignored over
    /// iWARP, where [`stall`](Self::stall) applies. Default: `6`.
    pub retry_cnt: u8,
    /// Time without a completion after which a path with requests in flight has failed. It must be
    /// longer than the retries take. Default: `Duration::from_secs(5)`.
    pub stall: Duration,
    /// Time that the peer has to confirm that it has closed a failed path. A transfer that was
    /// canceled or has passed its deadline does not wait longer for that
    /// ([`Transfer::is_confirmed`](crate::Transfer::is_confirmed)). Default:
    /// `Duration::from_secs(1)`.
    pub settle: Duration,
    /// Wait before a failed path is connected again. It doubles with each failure. Default:
    /// `Duration::from_millis(10)`.
    pub min_backoff: Duration,
    /// Limit of that wait, at most a day. A path that has worked for this time begins with
    /// `min_backoff` again. Default: `Duration::from_secs(5)`.
    pub max_backoff: Duration,
    /// Maximum time for which [`Transfer::wait`](crate::Transfer::wait) and
    /// [`ImmCounter::wait`](crate::ImmCounter::wait) poll before they sleep. A sleep costs several
    /// system calls and the time until the processor is available again. Between polls, the call
    /// yields the processor. Waits that are longer make the time shorter, down to zero. Default:
    /// `Duration::from_micros(500)`.
    pub poll_time: Duration,
    /// `true` to poll without sleeping. Each device then occupies a processor. Default: `false`.
    pub busy_poll: bool,
    /// `true` for an engine without threads. The program calls
    /// [`Engine::poll`](crate::Engine::poll) again and again, and the functions that wait do not
    /// make progress. Default: `false`.
    pub manual: bool,
}

impl EngineOptions {
    /// Returns the default options.
    pub const fn new() -> Self {
        Self {
            port_num: 1,
            queue_pairs: 1,
            max_paths: 128,
            max_regions: 4096,
            stripe: 262_144,
            max_send_wr: 128,
            max_recv_wr: 128,
            timeout: 14,
            retry_cnt: 6,
            stall: Duration::from_secs(5),
            settle: Duration::from_secs(1),
            min_backoff: Duration::from_millis(10),
            max_backoff: Duration::from_secs(5),
            poll_time: Duration::from_micros(500),
            busy_poll: false,
            manual: false,
        }
    }
}

/// Limit of the wait, which is added to the time.
const LONGEST_BACKOFF: Duration = Duration::from_secs(24 * 60 * 60);

impl EngineOptions {
    /// Returns the wait after a number of earlier failures, varied by up to a quarter.
    pub(crate) fn backoff(&self, failures: u32, salt: u64) -> Duration {
        let doubled = self
            .min_backoff
            .saturating_mul(1_u32.checked_shl(failures).unwrap_or(u32::MAX));
        let wait = doubled.min(self.max_backoff).min(LONGEST_BACKOFF);
        // The multiplier of Knuth's multiplicative hash.
        let hash = (salt ^ u64::from(failures)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54;
        let part = u32::try_from(hash).unwrap_or(0);
        wait + wait / 4 * part / 1024
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
        max_paths: usize,
        max_regions: usize,
        stripe: usize,
        max_send_wr: u32,
        max_recv_wr: u32,
        timeout: u8,
        retry_cnt: u8,
        stall: Duration,
        settle: Duration,
        min_backoff: Duration,
        max_backoff: Duration,
        poll_time: Duration,
        busy_poll: bool,
        manual: bool,
    }
}

/// Options of a transfer.
///
/// # Example
/// ```
/// use rdma_transfer::TransferOptions;
/// use std::time::Duration;
/// let options = TransferOptions::new().imm(7).deadline(Duration::from_secs(1));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TransferOptions {
    /// Immediate value that the peer counts when all bytes have arrived
    /// ([`Engine::imm_counter`](crate::Engine::imm_counter)). Only writes have one. Default:
    /// `None`.
    pub imm: Option<u32>,
    /// Time after which the transfer is canceled. Default: `None`, no limit.
    pub deadline: Option<Duration>,
    /// Device to use, by its position in [`Engine::open`](crate::Engine::open), as long as it
    /// works. Default: `None`, all devices.
    pub device: Option<usize>,
}

impl TransferOptions {
    /// Returns the default options.
    pub const fn new() -> Self {
        Self {
            imm: None,
            deadline: None,
            device: None,
        }
    }
}

setters! {
    TransferOptions {
        imm: Option<u32>,
        deadline: Option<Duration>,
        device: Option<usize>,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_backoff_doubles_up_to_its_limit() {
        let options = EngineOptions::new()
            .min_backoff(Duration::from_millis(10))
            .max_backoff(Duration::from_secs(1));
        let mut salts = 0..100;
        assert!(salts.all(|salt| {
            let wait = |failures| options.backoff(failures, salt).as_millis();
            (10..=12).contains(&wait(0))
                && (40..=50).contains(&wait(2))
                && (1000..=1250).contains(&wait(7))
                && (1000..=1250).contains(&wait(1000))
        }));
        assert_ne!(options.backoff(3, 1), options.backoff(3, 2));
    }
}
