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
pub const MAX_MEMORY: u64 = 1 << 30;
/// The memory that distinct buffers of `--verify` fill before the depth is lowered for them.
pub(super) const VERIFY_MEMORY: u64 = 64 << 20;
/// Messages in flight where nothing is asked for.
pub(super) const DEFAULT_DEPTH: u32 = 128;
/// How often an end that is at work says so, where nothing else would tell.
pub(super) const BEAT: Duration = Duration::from_millis(500);
/// The longest test.
pub const MAX_TIME: Duration = Duration::from_secs(7 * 86_400);
