//! A datagram queue pair for probes, with the times of its completions.

use std::time::{Duration, Instant};

use base::error::{Error, Result};
use base::system::random;
use ibverbs::cq_ex::{CompletionQueueEx, CqFields, Enabled};
use ibverbs::wr::{self, Destination};
use ibverbs::{
    CompletionChannel, CompletionQueue, CqOptions, DatagramAttr, Direction, GRH_LEN, Pool,
    ProtectionDomain, Psn, Qkey, QpOptions, QueuePair, Retired, Ud, UdSource,
};
use measure::transport::device::OpenedDevice;

use super::packet::{PROBE_LEN, Packet};

/// Maximum number of packets in flight.
const SENDS: u32 = 512;
/// Number of receive buffers.
const RECEIVES: u32 = 2048;
/// Maximum number of times that the completion queue is polled before its completions are handled.
/// More of them may arrive without end.
const MAX_POLLS: u32 = 64;

/// The completion queue. Some devices report the times of completions.
#[derive(Debug)]
enum Cq {
    Plain(CompletionQueue),
    Stamped {
        cq: CompletionQueueEx<CqFields<Enabled>>,
        /// Frequency of the device's clock in kHz.
        khz: u64,
    },
}

/// A datagram queue pair.
#[derive(Debug)]
pub struct DatagramQp {
    qp: QueuePair<Ud>,
    cq: Cq,
    channel: CompletionChannel,
    pd: ProtectionDomain,
    sends: Pool,
    receives: Pool,
    begin: Instant,
    /// Packets whose time was taken when they were posted.
    posted: Vec<Event>,
    /// Further completions may be in the completion queue.
    has_more: bool,
}

/// A completion.
#[derive(Debug)]
pub enum Event {
    /// A packet was sent. Without a clock of the device, the time is that of posting it: this
    /// process may run again only after the answer has arrived.
    Sent {
        /// The tag of the packet.
        tag: u64,
        /// Time in nanoseconds.
        at: u64,
    },
    /// A packet arrived.
    Received {
        /// The packet.
        packet: Packet,
        /// The global route header, if `source` has one.
        header: [u8; GRH_LEN],
        /// The sender.
        source: UdSource,
        /// Time in nanoseconds.
        at: u64,
    },
}

impl DatagramQp {
    /// Creates a queue pair that is ready to send and to receive.
    pub fn new(device: &OpenedDevice, qkey: Qkey) -> Result<Self> {
        let context = &device.context;
        let pd = context.alloc_pd()?;
        let channel = context.create_comp_channel()?;
        let max_wr = device.bounds.max_qp_wr;
        let (sends, receives) = (SENDS.min(max_wr), RECEIVES.min(max_wr));
        let options = CqOptions::new().depth(sends + receives).channel(&channel);
        let qp_options = QpOptions::new().max_send_wr(sends).max_recv_wr(receives);
        let khz = context
            .query_device_ex()
            .map_or(0, |attr| attr.hca_core_clock);
        let stamped = context.create_cq_ex(options, CqFields::new().timestamp());
        let (mut qp, mut cq) = if let Some(cq) = stamped.ok().filter(|_| khz > 0) {
            let qp = pd.create_qp::<Ud>(&cq, &cq, qp_options)?;
            (qp, Cq::Stamped { cq, khz })
        } else {
            let cq = context.create_cq(options)?;
            (pd.create_qp::<Ud>(&cq, &cq, qp_options)?, Cq::Plain(cq))
        };
        cq.arm()?;
        let psn = u32::try_from(random() & 0x00ff_ffff).unwrap_or(0);
        qp.start(&DatagramAttr::new(device.port_num, qkey).psn(Psn(psn)))?;
        let mut this = Self {
            sends: pd.pool(sends as usize, PROBE_LEN)?,
            receives: pd.pool(receives as usize, GRH_LEN + PROBE_LEN)?,
            qp,
            cq,
            channel,
            pd,
            begin: Instant::now(),
            posted: Vec::new(),
            has_more: false,
        };
        this.post_receives()?;
        Ok(this)
    }

    /// Returns the queue pair, for its number and to hold addresses.
    pub fn qp(&mut self) -> &mut QueuePair<Ud> {
        &mut self.qp
    }

    /// Returns the protection domain.
    pub fn pd(&self) -> &ProtectionDomain {
        &self.pd
    }

    /// Returns `true` if the device takes the times of completions.
    pub fn has_device_clock(&self) -> bool {
        matches!(self.cq, Cq::Stamped { .. })
    }

    /// Returns the number of packets that can be sent now.
    pub fn slots_free(&mut self) -> usize {
        self.sends.available().min(self.qp.send_slots_free())
    }

    /// Sends a packet. Returns `false` if too many are in flight.
    pub fn send(&mut self, packet: &Packet, to: Destination, tag: u64) -> Result<bool> {
        if self.qp.send_slots_free() == 0 {
            return Ok(false);
        }
        let Some(mut buf) = self.sends.take() else {
            return Ok(false);
        };
        let bytes = packet.encode();
        buf[..bytes.len()].copy_from_slice(&bytes);
        buf.set_len(bytes.len());
        let at = nanos_since(self.begin);
        self.qp.post_send(wr::send(buf).to(to).tag(tag))?;
        if !self.has_device_clock() {
            self.posted.push(Event::Sent { tag, at });
        }
        Ok(true)
    }

    /// Waits for completions for at most `timeout`.
    pub fn wait(&mut self, timeout: Duration) -> Result<()> {
        let timeout = if self.posted.is_empty() && !self.has_more {
            timeout
        } else {
            Duration::ZERO
        };
        if self.channel.wait(Some(timeout))?.is_some() {
            self.cq.arm()?;
        }
        Ok(())
    }

    /// Adds completions to `events`, up to a limit.
    pub fn poll(&mut self, events: &mut Vec<Event>) -> Result<()> {
        events.append(&mut self.posted);
        self.has_more = true;
        for _ in 0..MAX_POLLS {
            let mut retired = 0;
            match &mut self.cq {
                Cq::Plain(cq) => {
                    for completion in cq.poll()? {
                        let source = completion.source();
                        let done = self.qp.retire(completion).map_err(|_| foreign())?;
                        let event = event(done, source, nanos_since(self.begin))?;
                        events.extend(event.filter(|e| matches!(e, Event::Received { .. })));
                        retired += 1;
                    }
                }
                Cq::Stamped { cq, khz } => {
                    for completion in cq.poll()? {
                        let (source, ticks) = (completion.source(), completion.timestamp());
                        let done = self.qp.retire(completion.into()).map_err(|_| foreign())?;
                        events.extend(event(done, source, to_nanos(ticks, *khz))?);
                        retired += 1;
                    }
                }
            }
            self.post_receives()?;
            if retired == 0 {
                self.has_more = false;
                break;
            }
        }
        Ok(())
    }

    fn post_receives(&mut self) -> Result<()> {
        while let Some(buf) = self.receives.take() {
            self.qp.post_recv(wr::recv(buf))?;
        }
        Ok(())
    }
}

impl Cq {
    fn arm(&mut self) -> Result<()> {
        match self {
            Cq::Plain(cq) => cq.arm(false)?,
            Cq::Stamped { cq, .. } => cq.arm(false)?,
        }
        Ok(())
    }
}

fn foreign() -> Error {
    Error::device("the device reported a completion of another queue pair")
}

/// Returns the event of a completed request; `None` if a packet of another program arrived.
fn event(done: Retired, source: UdSource, at: u64) -> Result<Option<Event>> {
    if done.direction() == Direction::Send {
        return Ok(Some(Event::Sent {
            tag: done.tag(),
            at,
        }));
    }
    done.check()?;
    let len = done.received_len();
    let Some(buf) = done.into_buf() else {
        return Ok(None);
    };
    let received = buf.get(..len).unwrap_or_default();
    let packet = received
        .split_first_chunk::<GRH_LEN>()
        .and_then(|(header, payload)| Some((*header, Packet::decode(payload)?)));
    Ok(packet.map(|(header, packet)| Event::Received {
        packet,
        header,
        source,
        at,
    }))
}

/// Returns the nanoseconds since `begin`.
pub fn nanos_since(begin: Instant) -> u64 {
    u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// Converts ticks of a clock to nanoseconds.
fn to_nanos(ticks: u64, khz: u64) -> u64 {
    let nanos = u128::from(ticks) * 1_000_000 / u128::from(khz.max(1));
    u64::try_from(nanos).unwrap_or(u64::MAX)
}
