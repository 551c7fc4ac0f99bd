//! Routes with a queue pair.

use std::time::Duration;

use ibverbs::{QueueId, QueuePair, Rc};

use crate::active::{Attempt, Connecting, VERB};
use crate::connection::Connection;
use crate::error::ConnectError;
use crate::id::{Id, Path};
use crate::params::ConnectParams;
use crate::progress::InProgress;

/// A route with a queue pair in INIT. Post the first receives, then connect.
///
/// # Example
/// ```no_run
/// use ibverbs::{QueuePair, Rc, wr};
/// use rdmacm::{ConnectParams, Connection, ReadyRoute, Route};
/// use std::time::Duration;
/// # fn f(route: Route, qp: QueuePair<Rc>) -> Result<Connection, ibverbs::Error> {
/// let mut ready: ReadyRoute = route.with_qp(qp)?;
/// let buf = ready.qp_mut().pd().buf(4096)?;
/// ready.qp_mut().post_recv(wr::recv(buf))?; // posted before the peer can send
/// Ok(ready.connect(&ConnectParams::default(), Duration::from_secs(5))?)
/// # }
/// ```
#[doc(alias = "rdma_connect")]
#[derive(Debug)]
#[must_use = "nothing is connected until `connect`"]
pub struct ReadyRoute {
    // Drop order: the queue pair before its identifier.
    qp: QueuePair<Rc>,
    id: Id,
    path: Path,
    queue: QueueId,
}

impl ReadyRoute {
    pub(crate) fn new(qp: QueuePair<Rc>, id: Id, path: Path) -> Self {
        let queue = qp.id();
        Self {
            qp,
            id,
            path,
            queue,
        }
    }

    /// Returns the queue pair. Receives posted now are in place before the peer's first message can
    /// arrive.
    pub fn qp_mut(&mut self) -> &mut QueuePair<Rc> {
        &mut self.qp
    }

    /// Sends the connect request and waits for the connection, at most for `timeout`.
    ///
    /// On failure the buffers posted to the queue pair return to their pools. On iWARP, after a
    /// timeout, they return only when the kernel releases the queue pair (see the [crate
    /// documentation](crate#time-limits)).
    ///
    /// # Errors
    /// - [`ErrorKind::Disconnected`](ibverbs::ErrorKind::Disconnected) with a
    ///   [`Rejection`](crate::Rejection): the peer rejected the request, or nothing listens on the
    ///   port.
    /// - [`ErrorKind::TimedOut`](ibverbs::ErrorKind::TimedOut): the peer did not answer in time.
    /// - [`ErrorKind::InvalidInput`](ibverbs::ErrorKind::InvalidInput): the private data is too
    ///   long, or a parameter is out of range.
    #[doc(alias = "rdma_connect")]
    #[doc(alias = "rdma_establish")]
    pub fn connect(
        self,
        params: &ConnectParams<'_>,
        timeout: Duration,
    ) -> Result<Connection, ConnectError> {
        self.begin(params, false)?.wait(Some(timeout))
    }

    /// Sends the connect request without waiting for the answer.
    ///
    /// # Errors
    /// Same as [`connect`](Self::connect), if the failure is immediate.
    ///
    /// # Example
    /// ```no_run
    /// # use rdmacm::{ConnectParams, InProgress, ReadyRoute};
    /// # fn connect(ready: ReadyRoute) -> Result<(), Box<dyn std::error::Error>> {
    /// let mut connecting = ready.start(&ConnectParams::default())?;
    /// while connecting.try_finish()?.is_none() {
    ///     // Do other work here, or poll(2) connecting.as_fd().
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "rdma_connect")]
    pub fn start(self, params: &ConnectParams<'_>) -> Result<Connecting, ConnectError> {
        self.begin(params, true)
    }

    /// Sends the connect request. `has_descriptor` is `false` if the caller only waits for the
    /// result.
    fn begin(
        self,
        params: &ConnectParams<'_>,
        has_descriptor: bool,
    ) -> Result<Connecting, ConnectError> {
        let Self {
            qp,
            id,
            path,
            queue,
        } = self;
        let attempt = Attempt { qp, id };
        params.check(VERB, path.private_data_limits().request)?;
        path.check_same(VERB, &attempt.qp, queue)?;
        let params = params.limited_to(attempt.qp.pd().context())?;
        Ok(Connecting::start(attempt, &params, path, has_descriptor)?)
    }
}
