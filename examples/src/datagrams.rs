//! A datagram queue pair with its receives, for the programs that chat.

use std::time::Duration;

use ibverbs::{
    Buf, CompletionChannel, CompletionQueue, Context, CqOptions, Direction, GRH_LEN, Pool,
    ProtectionDomain, QpOptions, QueuePair, Ud, UdSource,
    wr::{self, Destination},
};

use crate::Result;

/// How long nothing may arrive before a program gives up.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// A datagram queue pair and what it stands on.
#[derive(Debug)]
pub struct Datagrams {
    /// The queue pair.
    pub qp: QueuePair<Ud>,
    pd: ProtectionDomain,
    cq: CompletionQueue,
    channel: CompletionChannel,
    receives: Pool,
    sends: Pool,
}

/// A datagram that came.
#[derive(Debug)]
pub struct Datagram {
    buf: Buf,
    /// Where it came from.
    pub source: UdSource,
    /// The 32 bits beside it, in which the real programs say the number of their queue pair.
    pub imm_data: Option<u32>,
}

impl Datagram {
    /// What it says: text up to the first zero, where it is text.
    pub fn text(&self) -> String {
        let bytes = &self.buf[GRH_LEN.min(self.buf.len())..];
        let end = bytes
            .iter()
            .position(|&byte| byte == 0)
            .unwrap_or(bytes.len());
        match std::str::from_utf8(&bytes[..end]) {
            Ok(text) if !text.is_empty() => text.to_owned(),
            _ => format!("({} bytes)", bytes.len()),
        }
    }

    /// The buffer with the route in its first 40 bytes.
    pub fn buf(&self) -> &Buf {
        &self.buf
    }
}

impl Datagrams {
    /// A queue pair for datagrams of at most `size` bytes, of which `count` may arrive unattended.
    /// It is yet to be started.
    ///
    /// # Errors
    /// The device has no datagrams, or not so many.
    pub fn new(context: &Context, size: usize, count: u32) -> Result<Self> {
        let pd = context.alloc_pd()?;
        let channel = context.create_comp_channel()?;
        let cq = context.create_cq(CqOptions {
            depth: count * 2,
            channel: Some(&channel),
            ..CqOptions::default()
        })?;
        let options = QpOptions {
            max_send_wr: count,
            max_recv_wr: count,
            ..QpOptions::default()
        };
        let qp = pd.create_qp::<Ud>(&cq, &cq, options)?;
        let (receives, sends) = (
            pd.pool(count as usize, GRH_LEN + size)?,
            pd.pool(count as usize, size)?,
        );
        Ok(Self {
            qp,
            pd,
            cq,
            channel,
            receives,
            sends,
        })
    }

    /// Posts every receive that nobody has. After the queue pair was started.
    ///
    /// # Errors
    /// The queue pair is broken.
    pub fn refill(&mut self) -> Result<()> {
        while let Some(buf) = self.receives.take() {
            self.qp
                .post_recv(wr::recv(buf))
                .map_err(ibverbs::Error::from)?;
        }
        Ok(())
    }

    /// Sends text, padded with zeros to `size` bytes, and the queue pair's number beside it.
    ///
    /// # Errors
    /// As many are on their way as may be.
    pub fn send(&mut self, text: &str, size: usize, to: Destination) -> Result<()> {
        let mut buf = self.sends.take().ok_or("too many on their way")?;
        buf.set_len(size);
        buf.fill(0);
        let len = text.len().min(size);
        buf[..len].copy_from_slice(&text.as_bytes()[..len]);
        let number = self.qp.qp_num().0;
        Ok(self
            .qp
            .post_send(wr::send_to_with_imm(buf, to, number))
            .map_err(ibverbs::Error::from)?)
    }

    /// The next datagram, or an error when there is none for some time.
    ///
    /// # Errors
    /// Nothing came, or something failed.
    pub fn receive(&mut self) -> Result<Datagram> {
        loop {
            if let Some(datagram) = self.take()? {
                self.refill()?;
                return Ok(datagram);
            }
            self.sleep()?;
        }
    }

    /// Waits until everything that was sent has left. What arrives meanwhile is not looked at.
    ///
    /// # Errors
    /// Something failed.
    pub fn flush(&mut self) -> Result<()> {
        let capacity = self.qp.caps().max_send_wr as usize;
        loop {
            while self.take()?.is_some() {}
            if self.qp.send_slots_free() == capacity {
                return Ok(());
            }
            self.sleep()?;
        }
    }

    /// The way back to who sent a datagram.
    ///
    /// # Errors
    /// It carries no number, or its sender cannot be reached.
    pub fn reply_to(
        &mut self,
        datagram: &Datagram,
        port_num: u8,
        qkey: ibverbs::Qkey,
    ) -> Result<Destination> {
        let number = datagram
            .imm_data
            .ok_or("a datagram without the number of its queue pair")?;
        let address = self
            .pd
            .create_ah_to_source(port_num, &datagram.source, datagram.buf())?;
        Ok(Destination {
            address: self.qp.hold_address(&address)?,
            qpn: ibverbs::Qpn(number),
            qkey,
        })
    }

    fn take(&mut self) -> Result<Option<Datagram>> {
        while let Some(completion) = self.cq.poll()?.next() {
            let source = completion.source();
            let retired = self.qp.retire(completion)?;
            retired.ok()?;
            let imm_data = retired.imm_data();
            if retired.direction() == Direction::Recv {
                if let Some(buf) = retired.into_buf() {
                    return Ok(Some(Datagram {
                        buf,
                        source,
                        imm_data,
                    }));
                }
            }
        }
        Ok(None)
    }

    /// Arms the queue and sleeps, unless something came before it was armed.
    fn sleep(&mut self) -> Result<()> {
        self.cq.arm(false)?;
        if !self.cq.poll()?.is_empty() {
            return Ok(());
        }
        match self.channel.wait(Some(PATIENCE))? {
            Some(_) => Ok(()),
            None => Err(format!("nothing came for {} s", PATIENCE.as_secs()).into()),
        }
    }
}
