//! Detection of messages that only change memory and cause no completion.

use super::QpGroup;
use crate::common::error::Result;
use crate::rperf::engine::PollCounts;

/// Reads of memory between two polls of the completion queue.
const READS_PER_POLL: u32 = 8;

impl QpGroup {
    /// Checks if the peer's next message is in memory.
    #[inline]
    pub(super) fn poll_memory(&mut self, progress: &mut PollCounts) -> Result<bool> {
        if !self.memory.has_message(self.reached)? {
            return Ok(false);
        }
        self.reached += 1;
        progress.reached = self.reached;
        progress.data += 1;
        progress.bytes += u64::from(self.memory.shape.msg_size);
        progress.completions += 1;
        Ok(true)
    }

    /// Checks memory several times before the completion queue is polled, which takes much longer.
    /// After several messages in a row it does not check, because the send queue would fill up if
    /// its completions were never polled.
    #[inline]
    pub(super) fn poll_memory_repeatedly(&mut self, progress: &mut PollCounts) -> Result<bool> {
        if self.unpolled >= self.memory.shape.depth / 8 {
            return Ok(false);
        }
        for _ in 0..READS_PER_POLL {
            if self.poll_memory(progress)? {
                self.unpolled += 1;
                return Ok(true);
            }
        }
        Ok(false)
    }
}
