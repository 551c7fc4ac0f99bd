//! What the messages of a test are made of, and where they end up.

use std::time::{Duration, Instant};

use ibverbs::{AccessFlags, Buf, Frozen, GRH_LEN, Pool, ProtectionDomain, SharedRegion, Sink};

use super::qp::{QpState, with_qp};
use crate::common::error::{Error, Result};
use crate::rperf::engine::payload;
use crate::rperf::spec::Shape;
use crate::rperf::spec::plan::{Pattern, Service, Verb};

/// How long what a write left may take to show where nothing acknowledges it.
const TO_SHOW: Duration = Duration::from_secs(1);

/// What is sent, and received into.
pub(super) enum Content {
    /// One source for all sends, one sink for all receives: nothing is copied or looked at.
    Same { bytes: Frozen },
    /// A buffer of its own for each, filled before and checked after.
    Distinct { sends: Pool, idle: Vec<Buf> },
    /// One message that differs from the one before in its last byte, which the peer looks at.
    Marked {
        bytes: Vec<u8>,
        region: SharedRegion,
    },
    /// Nothing is sent: fetches bring the peer's memory into this.
    Fetched { region: SharedRegion },
}

/// The memory of an end.
pub(super) struct Memory {
    pub(super) content: Content,
    /// What is open to the peer.
    pub(super) exposed: Option<SharedRegion>,
    pub(super) shape: Shape,
    /// Bytes before the payload of a receive.
    pub(super) header: usize,
    /// Room to look at a message.
    scratch: Vec<u8>,
    pub(super) verified: u64,
}

impl Memory {
    /// Makes the memory of `shape` and lets the lanes hold what they share; with what all receive
    /// into, where nothing is looked at.
    pub(super) fn new(
        pd: &ProtectionDomain,
        shape: Shape,
        qps: &mut [QpState],
    ) -> Result<(Self, Option<Sink>)> {
        let plan = shape.plan;
        let size = shape.msg_size as usize;
        let header = if plan.service == Service::Ud {
            GRH_LEN
        } else {
            0
        };
        let exposed = if plan.verb.is_one_sided() {
            Some(exposed(pd, &shape)?)
        } else {
            None
        };
        let content = match (plan.verb, plan.pattern) {
            (Verb::Read | Verb::CompareSwap | Verb::FetchAdd, _) => Content::Fetched {
                region: fetched(pd, &shape)?,
            },
            (Verb::Write, Pattern::Polled) => {
                let region = pd.shared_with(
                    shape.stride(),
                    AccessFlags::LOCAL_WRITE,
                    shape.tuning.memory(),
                )?;
                Content::Marked {
                    bytes: vec![0; size],
                    region,
                }
            }
            _ if shape.touches_payload() => {
                let receives = pd.pool_with(
                    (shape.receive_buffers() as usize).max(1),
                    size + header,
                    shape.tuning.memory(),
                )?;
                Content::Distinct {
                    sends: pd.pool_with(shape.sends() as usize, size, shape.tuning.memory())?,
                    idle: std::iter::from_fn(|| receives.take()).collect(),
                }
            }
            _ => {
                let pool = pd.pool_with(1, size, shape.tuning.memory())?;
                let mut buf = pool
                    .take()
                    .ok_or_else(|| Error::device("a pool of one buffer is empty"))?;
                payload::fill(&mut buf, 0);
                Content::Same {
                    bytes: buf.freeze(),
                }
            }
        };
        let sink = match &content {
            // Credits and immediate data need no room, but a datagram's header does.
            Content::Same { .. } if plan.verb == Verb::Send => {
                Some(pd.sink_with(size + header, shape.tuning.memory())?)
            }
            _ => None,
        };
        for state in qps {
            match &content {
                Content::Same { bytes } => state.source.frozen = hold(state, Some(bytes))?,
                Content::Marked { region, .. } | Content::Fetched { region } => {
                    state.source.shared = hold(state, Some(region))?;
                }
                Content::Distinct { .. } => {}
            }
        }
        Ok((
            Self {
                content,
                exposed,
                shape,
                header,
                scratch: vec![0; size],
                verified: 0,
            },
            sink,
        ))
    }

    /// Where in open memory message number `n` has its place.
    pub(super) fn slot(&self, n: u64) -> usize {
        usize::try_from(n % u64::from(self.shape.exposed_slots())).unwrap_or(0)
            * self.shape.stride()
    }

    /// The message `n` of the peer that looks for it, with its mark at the end.
    pub(super) fn mark(&mut self, n: u64) -> Result<()> {
        let Content::Marked { bytes, region } = &mut self.content else {
            return Ok(());
        };
        let last = bytes.len() - 1;
        if self.shape.verify {
            payload::fill(&mut bytes[..last], n);
        }
        bytes[last] = mark_of(n);
        let changed = if self.shape.verify { 0 } else { last };
        region
            .write(changed, &bytes[changed..])
            .map_err(Error::from)
    }

    /// Whether message number `n` of the peer shows in open memory.
    #[inline]
    pub(super) fn shows(&mut self, n: u64) -> Result<bool> {
        let Some(exposed) = &self.exposed else {
            return Ok(false);
        };
        let mut last = [0];
        exposed.read(self.shape.msg_size as usize - 1, &mut last)?;
        if last[0] != mark_of(n) {
            return Ok(false);
        }
        if self.shape.touches_payload() {
            // The last byte may show before those that were written with it.
            let begin = Instant::now();
            while let Err(error) = self.look(0, n, 1) {
                if begin.elapsed() > TO_SHOW {
                    return Err(error);
                }
            }
        }
        Ok(true)
    }

    /// Checks message `n` at an offset of open memory, but for `but` bytes at its end.
    pub(super) fn look(&mut self, offset: usize, n: u64, but: usize) -> Result<()> {
        let ((_, Content::Fetched { region }) | (Some(region), _)) = (&self.exposed, &self.content)
        else {
            return Ok(());
        };
        region.read(offset, &mut self.scratch)?;
        if !self.shape.verify {
            payload::access(&self.scratch);
            return Ok(());
        }
        payload::check(&self.scratch[..self.scratch.len() - but], n)?;
        self.verified += self.scratch.len() as u64;
        Ok(())
    }

    /// Checks what a fetch brought.
    pub(super) fn check_fetched(&mut self, offset: usize, n: u64) -> Result<()> {
        if self.shape.plan.verb == Verb::Read {
            return self.look(offset, n % u64::from(self.shape.exposed_slots()), 0);
        }
        let Content::Fetched { region } = &self.content else {
            return Ok(());
        };
        if !self.shape.verify {
            return self.look(offset, n, 0);
        }
        let value = region.load(offset, std::sync::atomic::Ordering::Acquire)?;
        let before = n / u64::from(self.shape.qps);
        if value != before {
            return Err(Error::test(format!(
                "atomic number {n} found {value} where {before} belongs"
            )));
        }
        self.verified += 8;
        Ok(())
    }

    /// Checks what the peer's writes left.
    pub(super) fn verify_final(&mut self, made: u64) -> Result<()> {
        let plan = self.shape.plan;
        if !self.shape.verify || plan.verb != Verb::Write || plan.pattern == Pattern::Polled {
            return Ok(());
        }
        let slots = u64::from(self.shape.exposed_slots());
        for n in made.saturating_sub(slots)..made {
            let begin = Instant::now();
            let mut older = n;
            while let Err(error) = self.look(self.slot(n), older, 0) {
                // Where writes can be lost, one of an earlier round may be what shows.
                match older
                    .checked_sub(slots)
                    .filter(|_| !self.shape.is_reliable())
                {
                    Some(earlier) => older = earlier,
                    None if self.shape.is_reliable() || begin.elapsed() > TO_SHOW => {
                        return Err(error);
                    }
                    None => older = n,
                }
            }
        }
        Ok(())
    }
}

/// The last byte of message `n` where that is looked at: never that of the message before.
fn mark_of(n: u64) -> u8 {
    n.wrapping_add(1).to_le_bytes()[0]
}

fn hold<K: ibverbs::Hold>(
    state: &mut QpState,
    memory: Option<&K>,
) -> Result<Option<ibverbs::Held<K>>> {
    memory
        .map(|memory| with_qp!(&mut state.qp, qp => qp.hold(memory)).map_err(Error::from))
        .transpose()
}

/// Memory that the peer writes, reads or counts in; for reads it is filled.
fn exposed(pd: &ProtectionDomain, shape: &Shape) -> Result<SharedRegion> {
    let slots = shape.exposed_slots() as usize;
    let region = pd.shared_with(
        slots * shape.stride(),
        shape.plan.verb.remote_access(),
        shape.tuning.memory(),
    )?;
    if shape.plan.verb == Verb::Read {
        let mut bytes = vec![0; shape.msg_size as usize];
        for n in 0..slots {
            payload::fill(&mut bytes, n as u64);
            region.write(n * shape.stride(), &bytes)?;
        }
    }
    Ok(region)
}

/// What fetches bring here: a place for each that is under way, as each is looked at. On iWARP the
/// answer to a read is a write of the peer's.
fn fetched(pd: &ProtectionDomain, shape: &Shape) -> Result<SharedRegion> {
    pd.shared_with(
        shape.fetch_slots() as usize * shape.stride(),
        AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE,
        shape.tuning.memory(),
    )
    .map_err(Error::from)
}
