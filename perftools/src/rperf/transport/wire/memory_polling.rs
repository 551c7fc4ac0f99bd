//! Messages that are looked for in memory, as nothing else tells of them.

use super::QpGroup;
use crate::common::error::Result;
use crate::rperf::engine::PollCounts;

/// Looks into memory between polls of the completion queue.
const LOOKS_PER_POLL: u32 = 8;

impl QpGroup {
    /// Looks for the peer's next message in memory, where that is all that tells of it.
    #[inline]
    pub(super) fn shows(&mut self, progress: &mut PollCounts) -> Result<bool> {
        if !self.memory.shows(self.reached)? {
            return Ok(false);
        }
        self.reached += 1;
        progress.reached = self.reached;
        progress.data += 1;
        progress.bytes += u64::from(self.memory.shape.msg_size);
        progress.completions += 1;
        Ok(true)
    }

    /// The same some times over, before the completion queue is polled, which takes much longer;
    /// but not for so many messages in a row that the queue runs out of the room that
    /// completions give back.
    #[inline]
    pub(super) fn shows_soon(&mut self, progress: &mut PollCounts) -> Result<bool> {
        if self.unpolled >= self.memory.shape.depth / 8 {
            return Ok(false);
        }
        for _ in 0..LOOKS_PER_POLL {
            if self.shows(progress)? {
                self.unpolled += 1;
                return Ok(true);
            }
        }
        Ok(false)
    }
}
