//! A datagram queue pair with its buffers, for `ud_chat` and `mc_chat`.

use std::time::Duration;

use ibverbs::{
    Buf, CompletionChannel, CompletionQueue, Context, CqOptions, Direction, GRH_LEN, Pool,
    ProtectionDomain, QpOptions, QueuePair, Ud, UdSource,
    wr::{self, Destination},
};

use crate::Result;

/// Time without any completion after which a program fails.
pub const TIMEOUT: Duration = Duration::from_secs(10);

/// A datagram queue pair with its completion queue and its buffer pools.
#[derive(Debug)]
pub struct DatagramSocket {
    /// The queue pair.
    pub qp: QueuePair<Ud>,
    pd: ProtectionDomain,
    cq: CompletionQueue,
    channel: CompletionChannel,
    receives: Pool,
    sends: Pool,
}

/// A received datagram.
#[derive(Debug)]
pub struct Datagram {
    buf: Buf,
    /// Address of the sender.
    pub source: UdSource,
    /// Immediate data. The programs of librdmacm send the number of their queue pair.
    pub imm_data: Option<u32>,
}

impl Datagram {
    /// Returns the payload up to the first zero byte as text, or a description if it is not UTF-8.
    pub fn text(&self) -> String {
        let bytes = &self.buf[GRH_LEN.min(self.buf.len())..];
        let end = bytes
            .iter()
            .position(|&byte| byte == 0)
            .unwrap_or(bytes.len());
        match std::str::from_utf8(&bytes[..end]) {
            Ok(text) if !text.is_empty() => text.to_owned(),
            _ => format!("({} bytes of data)", bytes.len()),
        }
    }

    /// Returns the whole buffer; its first 40 bytes hold the global route header.
    pub fn buf(&self) -> &Buf {
        &self.buf
    }
}

impl DatagramSocket {
    /// Creates a queue pair for datagrams of at most `size` bytes, with `count` sends and receives.
    ///
    /// The caller starts the queue pair, then calls [`refill`](Self::refill).
    ///
    /// # Errors
    /// The device has no datagram queue pairs, or does not support `count` requests.
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

    /// Posts all free receive buffers. The queue pair must have been started.
    ///
    /// # Errors
    /// Posting fails.
    pub fn refill(&mut self) -> Result<()> {
        while let Some(buf) = self.receives.take() {
            self.qp
                .post_recv(wr::recv(buf))
                .map_err(ibverbs::Error::from)?;
        }
        Ok(())
    }

    /// Sends text, padded with zeros to `size` bytes, with the queue pair number as immediate data.
    ///
    /// # Errors
    /// All send buffers are in flight, or posting fails.
    pub fn send(&mut self, text: &str, size: usize, destination: Destination) -> Result<()> {
        let mut buf = self
            .sends
            .take()
            .ok_or("send a datagram: all send buffers are in flight")?;
        buf.set_len(size);
        buf.fill(0);
        let len = text.len().min(size);
        buf[..len].copy_from_slice(&text.as_bytes()[..len]);
        let qp_num = self.qp.qp_num().0;
        Ok(self
            .qp
            .post_send(wr::send_to_with_imm(buf, destination, qp_num))
            .map_err(ibverbs::Error::from)?)
    }

    /// Waits for the next datagram.
    ///
    /// # Errors
    /// No datagram arrives within [`TIMEOUT`], or a request fails.
    pub fn receive(&mut self) -> Result<Datagram> {
        loop {
            if let Some(datagram) = self.poll()? {
                self.refill()?;
                return Ok(datagram);
            }
            self.sleep()?;
        }
    }

    /// Waits until all sends have completed. Datagrams received meanwhile are discarded.
    ///
    /// # Errors
    /// No send completes within [`TIMEOUT`], or a request fails.
    pub fn flush(&mut self) -> Result<()> {
        let capacity = self.qp.caps().max_send_wr as usize;
        loop {
            while self.poll()?.is_some() {}
            if self.qp.send_slots_free() == capacity {
                return Ok(());
            }
            self.sleep()?;
        }
    }

    /// Returns the destination for a reply to a datagram.
    ///
    /// # Errors
    /// The datagram has no immediate data, or no address handle can be created for its sender.
    pub fn reply_to(
        &mut self,
        datagram: &Datagram,
        port_num: u8,
        qkey: ibverbs::Qkey,
    ) -> Result<Destination> {
        let qp_num = datagram
            .imm_data
            .ok_or("reply to a datagram: it has no immediate data with the queue pair number")?;
        let address = self
            .pd
            .create_ah_from_wc(port_num, &datagram.source, datagram.buf())?;
        Ok(Destination {
            address: self.qp.hold_address(&address)?,
            qpn: ibverbs::Qpn(qp_num),
            qkey,
        })
    }

    /// Retires completed requests until one of them is a received datagram.
    fn poll(&mut self) -> Result<Option<Datagram>> {
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

    /// Sleeps until the completion queue has an entry.
    fn sleep(&mut self) -> Result<()> {
        // An entry that was added before arming causes no event.
        self.cq.arm(false)?;
        if !self.cq.poll()?.is_empty() {
            return Ok(());
        }
        match self.channel.wait(Some(TIMEOUT))? {
            Some(_) => Ok(()),
            None => Err(format!("wait for a completion: none for {} s", TIMEOUT.as_secs()).into()),
        }
    }
}
