//! The client's side: reading an entry until it is whole.

use std::time::Instant;

use ibverbs::{Buf, CompletionQueue, QueuePair, Rc, RemoteMemory, wr};

use super::entry::{ENTRY, Entry, Read, parse, places};
use crate::{Result, wait};

/// Looks keys up by RDMA reads, one after the other.
#[derive(Debug)]
pub struct Reader {
    cq: CompletionQueue,
    qp: QueuePair<Rc>,
    buf: Option<Buf>,
    table: RemoteMemory,
    /// How many reads it took so far.
    pub reads: u64,
    /// How many of them were torn, and done again.
    pub torn: u64,
}

impl Reader {
    /// A reader of `table`, through a queue pair that is connected to its owner, with a buffer of
    /// [`ENTRY`] bytes.
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

    /// What the table says of a key; `None` if it is not there.
    ///
    /// # Errors
    /// When a read fails, and when an entry stays torn: its writer stopped in the middle.
    pub fn look_up(&mut self, key: &[u8]) -> Result<Option<Entry>> {
        for place in places(self.table.len, key) {
            match self.read_whole(
                self.table
                    .slice(place, ENTRY as u64)
                    .ok_or("the table is cut short")?,
            )? {
                Some(entry) if entry.key == key => return Ok(Some(entry)),
                Some(_) => {} // another key took the place
                None => return Ok(None),
            }
        }
        Ok(None)
    }

    /// Reads an entry until it is whole; `None` if the place is empty.
    fn read_whole(&mut self, remote: RemoteMemory) -> Result<Option<Entry>> {
        let begun = Instant::now();
        while begun.elapsed() < wait::PATIENCE {
            let buf = self.buf.take().ok_or("an earlier read failed")?;
            self.qp.post_send(wr::read(buf, remote))?;
            let retired = wait::one(&mut self.cq, &mut self.qp)?;
            retired.ok()?;
            let buf = retired.into_buf().ok_or("a read without a buffer")?;
            let read = parse(buf[..].try_into()?);
            self.buf = Some(buf);
            self.reads += 1;
            match read {
                Read::Empty => return Ok(None),
                Read::Whole(entry) => return Ok(Some(entry)),
                Read::Torn => self.torn += 1,
            }
        }
        Err("an entry never was whole: did the server stop in the middle of a change?".into())
    }
}
