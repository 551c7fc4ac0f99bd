//! Tokens for the memory lent to a scope. The scope counts the requests in flight that use them.

#![allow(unsafe_code)]

use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;

use rdma_sys::ibv_sge;

use crate::identity::QueueId;
use crate::in_flight::{InFlight, LoanCounter};
use crate::wr::{Gather, PostableTo, ReadPayload, RecvPayload, SendPayload};
use crate::wr::{private::Payload, private::Source, private::Target, returned};

/// Marks the one scope that a value belongs to: a lifetime that is equal to no other.
pub(crate) type Brand<'scope> = PhantomData<fn(&'scope ()) -> &'scope ()>;

/// A range of lent memory.
#[derive(Clone, Copy)]
struct LentRange {
    sge: ibv_sge,
    scope: QueueId,
    loans: LoanCounter,
}

impl LentRange {
    fn slice(self, range: Range<usize>) -> Option<Self> {
        let (start, end) = (
            u32::try_from(range.start).ok()?,
            u32::try_from(range.end).ok()?,
        );
        if start > end || end > self.sge.length {
            return None;
        }
        let sge = ibv_sge {
            addr: self.sge.addr + u64::from(start),
            length: end - start,
            lkey: self.sge.lkey,
        };
        Some(Self { sge, ..self })
    }
}

macro_rules! token {
    ($(#[$meta:meta])* $name:ident) => {
        $(#[$meta])*
        #[derive(Clone)]
        pub struct $name<'scope> {
            range: LentRange,
            brand: Brand<'scope>,
        }

        impl $name<'_> {
            pub(crate) fn new(sge: ibv_sge, scope: QueueId, loans: LoanCounter) -> Self {
                Self { range: LentRange { sge, scope, loans }, brand: PhantomData }
            }

            /// Returns this range of the memory, or `None` if it is out of bounds.
            pub fn slice(self, range: Range<usize>) -> Option<Self> {
                self.range.slice(range).map(|range| Self { range, brand: PhantomData })
            }

            /// Returns the length in bytes.
            pub fn len(&self) -> usize {
                self.range.sge.length as usize
            }

            /// Returns `true` if the length is 0.
            pub fn is_empty(&self) -> bool {
                self.len() == 0
            }
        }

        impl fmt::Debug for $name<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name)).field("len", &self.len()).finish_non_exhaustive()
            }
        }

        impl Payload for $name<'_> {
            returned!(Infallible);

            #[inline]
            fn postable_to(&self) -> PostableTo<'_> {
                PostableTo::Scope(self.range.scope)
            }

            #[inline]
            fn into_in_flight(self) -> Option<InFlight> {
                // SAFETY: a token cannot leave the closure of its scope, which has not ended then.
                Some(InFlight::Lent(unsafe { self.range.loans.begin() }))
            }
        }

        impl Source for $name<'_> {
            #[inline]
            fn gather(&self) -> Gather<'_> {
                Gather::One(self.range.sge)
            }
        }

        impl SendPayload for $name<'_> {}
    };
}

token! {
    /// Memory lent to a [`Scope`](crate::scope::Scope) for reading. Its requests can send it.
    ///
    /// # Example
    /// Two messages are sent from one loan:
    /// ```no_run
    /// use ibverbs::{Rc, Result, scope::{Lent, Scope}, wr};
    /// fn send_halves<'s>(scope: &mut Scope<'s, '_, Rc>, lent: Lent<'s>) -> Result<()> {
    ///     let half = lent.len() / 2;
    ///     if let (Some(first), Some(second)) = (lent.clone().slice(0..half), lent.clone().slice(half..lent.len())) {
    ///         scope.post_send(wr::send(first))?;
    ///         scope.post_send(wr::send(second))?;
    ///     }
    ///     Ok(())
    /// }
    /// ```
    Lent
}

token! {
    /// Memory lent to a [`Scope`](crate::scope::Scope) for writing. Its requests can receive into it,
    /// read into it and send it.
    ///
    /// # Example
    /// A peer's memory is read into a slice of the caller:
    /// ```no_run
    /// use std::time::Duration;
    /// use ibverbs::{CompletionQueue, QueuePair, Rc, RemoteMemory, scope::LentMut, wr};
    /// # fn f(qp: &mut QueuePair<Rc>, cq: &mut CompletionQueue, remote: RemoteMemory) -> ibverbs::Result<()> {
    /// let mut table = vec![0; 1 << 20];
    /// qp.scope(|scope| {
    ///     let into: LentMut<'_> = scope.lend_mut(&mut table)?;
    ///     scope.post_send(wr::read(into, remote))?;
    ///     scope.wait(cq, Duration::from_secs(5), |_| ())
    /// })?;
    /// println!("{:?}", &table[..16]);
    /// # Ok(()) }
    /// ```
    LentMut
}

impl Target for LentMut<'_> {
    #[inline]
    fn scatter(&self) -> Gather<'_> {
        Gather::One(self.range.sge)
    }
}

impl RecvPayload for LentMut<'_> {}
impl ReadPayload for LentMut<'_> {}
