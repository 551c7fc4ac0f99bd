//! The client: reads entries by RDMA and repeats torn reads.

use std::time::Instant;

use ibverbs::{Buf, CompletionQueue, QueuePair, Rc, RemoteMemory, wr};

use super::entry::{ENTRY_LEN, Entry, Slot, parse, probe_offsets};
use crate::{Result, wait};

/// A client of the table, with one RDMA read in flight at a time.
#[derive(Debug)]
pub struct Reader {
    cq: CompletionQueue,
    qp: QueuePair<Rc>,
    buf: Option<Buf>,
    table: RemoteMemory,
    /// Number of RDMA reads.
    pub reads: u64,
    /// Number of RDMA reads that returned a torn entry.
    pub torn: u64,
}

impl Reader {
    /// Creates a reader of `table`. The queue pair must be connected to the server, and the buffer
    /// must have [`ENTRY_LEN`] bytes.
    pub fn new(cq: CompletionQueue, qp: QueuePair<Rc>, buf: Buf, table: RemoteMemory) -> Self {
        Self {
            cq,
            qp,
            buf: Some(buf),
            table,
            reads: 0,
            torn: 0,
        }
    }

    /// Returns the entry of a key; `None` if the table does not contain the key.
    ///
    /// # Errors
    /// A read fails, or an entry stays torn because the server stopped during a write.
    pub fn look_up(&mut self, key: &[u8]) -> Result<Option<Entry>> {
        for offset in probe_offsets(self.table.len, key) {
            let slot = self
                .table
                .slice(offset, ENTRY_LEN as u64)
                .ok_or("slot beyond the end of the table")?;
            match self.read_slot(slot)? {
                Some(entry) if entry.key == key => return Ok(Some(entry)),
                Some(_) => {} // the slot holds a different key
                None => return Ok(None),
            }
        }
        Ok(None)
    }

    /// Reads a slot until its entry is consistent; returns `None` if the slot is empty.
    fn read_slot(&mut self, remote: RemoteMemory) -> Result<Option<Entry>> {
        let start = Instant::now();
        while start.elapsed() < wait::TIMEOUT {
            let buf = self
                .buf
                .take()
                .ok_or("read a slot: an earlier read failed")?;
            self.qp.post_send(wr::read(buf, remote))?;
            let retired = wait::one(&mut self.cq, &mut self.qp)?;
            retired.ok()?;
            let buf = retired.into_buf().ok_or("a read had no buffer")?;
            let slot = parse(buf[..].try_into()?);
            self.buf = Some(buf);
            self.reads += 1;
            match slot {
                Slot::Empty => return Ok(None),
                Slot::Valid(entry) => return Ok(Some(entry)),
                Slot::Torn => self.torn += 1,
            }
        }
        Err("read a slot: it stayed torn; the server may have stopped during a write".into())
    }
}
