//! Payloads that need no registered memory: inline data and empty messages.

use super::payload::{DeviceReads, Gather, PostableTo, RecvPayload, SendPayload, returned};
use super::payload::{private::Payload, private::Source, private::Target};
use crate::in_flight::InFlight;

/// Inline data: bytes that are copied when the request is posted. They need not be registered, and
/// the caller can reuse them immediately.
///
/// The length is at most [`QpCaps::max_inline_data`](crate::QpCaps) bytes.
///
/// # Example
/// ```no_run
/// use ibverbs::{QueuePair, Rc, wr};
/// # fn f(qp: &mut QueuePair<Rc>) -> ibverbs::Result<()> {
/// let line = format!("queue pair {}", qp.qp_num());
/// qp.post_send(wr::send(wr::Inline(line.as_bytes())))?;
/// drop(line); // posting copied it
/// # Ok(()) }
/// ```
///
/// # References
/// [`ibv_post_send(3)`](https://man7.org/linux/man-pages/man3/ibv_post_send.3.html) (`IBV_SEND_INLINE`)
#[doc(alias = "ibv_post_send")]
#[derive(Clone, Copy, Debug)]
pub struct Inline<'a>(pub &'a [u8]);

/// An empty payload: a message of zero bytes.
///
/// # Example
/// A message without data, and a receive for one:
/// ```no_run
/// use ibverbs::{QueuePair, Rc, wr};
/// # fn f(qp: &mut QueuePair<Rc>) -> ibverbs::Result<()> {
/// qp.post_recv(wr::recv(wr::Empty))?;
/// qp.post_send(wr::send_with_imm(wr::Empty, 42))?;
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Empty;

impl Payload for Inline<'_> {
    returned!(Infallible);

    #[inline]
    fn postable_to(&self) -> PostableTo<'_> {
        PostableTo::AnyQueue
    }

    #[inline]
    fn device_reads(&self) -> DeviceReads {
        DeviceReads::Nothing
    }

    #[inline]
    fn into_in_flight(self) -> Option<InFlight> {
        None
    }
}

impl Source for Inline<'_> {
    #[inline]
    fn gather(&self) -> Gather<'_> {
        Gather::Inline(self.0)
    }
}

impl SendPayload for Inline<'_> {}

impl Payload for Empty {
    returned!(Self);

    #[inline]
    fn postable_to(&self) -> PostableTo<'_> {
        PostableTo::AnyQueue
    }

    #[inline]
    fn device_reads(&self) -> DeviceReads {
        DeviceReads::Nothing
    }

    #[inline]
    fn into_in_flight(self) -> Option<InFlight> {
        None
    }
}

impl Source for Empty {
    #[inline]
    fn gather(&self) -> Gather<'_> {
        Gather::Empty
    }
}

impl Target for Empty {
    #[inline]
    fn scatter(&self) -> Gather<'_> {
        Gather::Empty
    }
}

impl SendPayload for Empty {}
impl RecvPayload for Empty {}
