//! Detects messages by polling memory, for RDMA writes that cause no completion here.

use base::error::Result;

use super::QpGroup;

/// Reads of memory between two polls of the completion queue.
const READS_PER_POLL: u32 = 8;

impl QpGroup {
    /// Counts the peer's next message and returns `true` if it is in memory.
    #[inline]
    pub(super) fn poll_memory(&mut self) -> Result<bool> {
        let Some(number) = self.memory.message_from(self.counts.next_expected)? else {
            return Ok(false);
        };
        self.counts.next_expected = number + 1;
        self.counts.arrived.msgs += 1;
        self.counts.arrived.bytes += u64::from(self.memory.shape.msg_size);
        Ok(true)
    }

    /// Polls memory several times before the caller polls the completion queue, which takes much
    /// longer.
    ///
    /// Returns `false` without a look at memory after too many messages in a row. The caller must
    /// then poll the completion queue, because completions free the slots of the send queue.
    #[inline]
    pub(super) fn poll_memory_repeatedly(&mut self) -> Result<bool> {
        if self.unpolled >= self.memory.shape.depth / 4 {
            return Ok(false);
        }
        for _ in 0..READS_PER_POLL {
            if self.poll_memory()? {
                self.unpolled += 1;
                return Ok(true);
            }
        }
        Ok(false)
    }
}
