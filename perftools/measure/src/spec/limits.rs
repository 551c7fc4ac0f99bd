//! Limits of this program.

use std::time::Duration;

/// Maximum size of a socket buffer in bytes.
pub(super) const MAX_SOCKET_BUFFER: u32 = 1 << 30;
/// Maximum number of messages in flight.
pub const MAX_DEPTH: u32 = 16_384;
/// Maximum number of queue pairs of one test.
pub(crate) const MAX_QPS: u32 = 16_384;
/// Maximum number of queue pairs of a thread whose queues have slots for all messages in flight, if
/// their messages can take turns.
pub(super) const MAX_LARGE_QUEUES: u32 = 64;
/// Maximum number of receivers of a multicast test.
pub(super) const MAX_RECEIVERS: u32 = 256;
/// Maximum number of slots in all send queues of one end. Where each queue can hold all messages in
/// flight, many queue pairs lower the depth: with 16,384 of them, 64 messages are in flight.
pub(super) const MAX_SEND_SLOTS: u32 = 1 << 20;
/// Maximum number of threads of one test at each end.
pub const MAX_THREADS: u32 = 64;
/// Maximum memory in bytes that one end of a test may register.
pub(crate) const MAX_MEMORY: u64 = 2 << 30;
/// Memory in bytes that the buffers of one end may take if each message has its own buffer; the
/// depth is lowered to stay within it.
pub(super) const VERIFY_MEMORY: u64 = 64 << 20;
/// Number of consecutive messages for which a receiver of unreliable messages remembers if they
/// arrived. A message that is later than that counts as a duplicate.
pub(crate) const ARRIVALS_WINDOW: u64 = 1 << 18;
/// Default number of messages in flight.
const DEFAULT_DEPTH: u64 = 1024;
/// Default duration of a test.
pub const DEFAULT_TIME: Duration = Duration::from_secs(2);
/// Default time after which a test fails if the peer does not respond.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of bytes in flight with the default depth.
const DEFAULT_BYTES: u64 = 16 << 20;
/// Minimum of the default depth, even if messages are so large that it exceeds `DEFAULT_BYTES`.
const MIN_DEFAULT_DEPTH: u64 = 2;
/// Maximum depth of a latency test. Only one message is in flight, but every send posted since the
/// last completion takes a slot of the send queue, and a completion is requested every half depth.
pub(super) const LATENCY_DEPTH: u32 = 64;
/// Maximum depth of a latency test in which each message has its own buffer.
pub(super) const LATENCY_DEPTH_OWN_BUFFERS: u32 = 4;
/// Maximum interval between heartbeats, which show the peer that this end is alive.
pub(super) const HEARTBEAT_INTERVAL: Duration = Duration::from_millis(500);
/// Maximum duration of a test that has one.
pub(crate) const MAX_TIME: Duration = Duration::from_secs(7 * 86_400);
/// Duration of a test without end, which is interrupted: a century.
pub const UNLIMITED: Duration = Duration::from_secs(100 * 365 * 86_400);

/// Maximum duration of the warm-up.
pub(super) const MAX_WARM_UP: Duration = Duration::from_secs(3_600);

/// Returns the default number of messages in flight for messages of `msg_size` bytes.
pub fn default_depth(msg_size: u64) -> u32 {
    let depth = (DEFAULT_BYTES / msg_size.max(1)).clamp(MIN_DEFAULT_DEPTH, DEFAULT_DEPTH);
    u32::try_from(depth).unwrap_or(u32::MAX)
}
