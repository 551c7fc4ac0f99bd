//! What this program does at most.

use std::time::Duration;

/// The largest buffers of sockets.
pub(super) const MAX_BUFFERS: u32 = 1 << 30;
/// The most messages in flight.
pub const MAX_DEPTH: u32 = 16_384;
/// The most queue pairs of one test.
pub const MAX_QPS: u32 = 256;
/// The most threads of one test at each end.
pub const MAX_THREADS: u32 = 64;
/// The memory that one end of a test may register.
pub const MAX_MEMORY: u64 = 2 << 30;
/// The memory that distinct buffers of `--verify` fill before the depth is lowered for them.
pub(super) const VERIFY_MEMORY: u64 = 64 << 20;
/// Messages in flight where nothing is asked for: so many, but of large ones so many bytes, and
/// always so many.
const DEFAULT_DEPTH: u64 = 1024;
const DEFAULT_BYTES: u64 = 16 << 20;
const LEAST_DEFAULT_DEPTH: u64 = 8;
/// The depth of a test of latency at most. One message is under way; half of the depth lies between
/// two that ask for a completion.
pub(super) const LATENCY_DEPTH: u32 = 64;
/// The same where each message has a buffer of its own.
pub(super) const LATENCY_DEPTH_OF_BUFFERS: u32 = 4;
/// How often an end that is at work says so, where nothing else would tell.
pub(super) const HEARTBEAT_INTERVAL: Duration = Duration::from_millis(500);
/// The longest test.
pub const MAX_TIME: Duration = Duration::from_secs(7 * 86_400);

/// Messages of this size in flight where nothing is asked for.
pub(in crate::rperf) fn default_depth(msg_size: u64) -> u32 {
    let depth = (DEFAULT_BYTES / msg_size.max(1)).clamp(LEAST_DEFAULT_DEPTH, DEFAULT_DEPTH);
    u32::try_from(depth).unwrap_or(u32::MAX)
}
