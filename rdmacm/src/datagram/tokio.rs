//! Datagram service requests awaited on tokio.

use ibverbs::Result;

use super::{ServiceListener, ServiceRequest};
use crate::passive::AsyncListener;

impl AsyncListener<ServiceListener> {
    /// Registers a listener with the current tokio runtime, which must have I/O enabled.
    ///
    /// # Errors
    /// Same as [`AsyncListener::new`].
    ///
    /// # Panics
    /// Panics if the runtime does not have I/O enabled.
    pub fn new_datagram(listener: ServiceListener) -> Result<Self> {
        let channel = listener.channel().clone();
        Self::with_channel(listener, &channel)
    }

    /// Awaits a request.
    ///
    /// # Cancel safety
    /// A future that is dropped before it is ready has taken no request.
    ///
    /// # Errors
    /// Same as [`ServiceListener::next_request`].
    #[doc(alias = "rdma_get_cm_event")]
    pub async fn next_request(&self) -> Result<ServiceRequest> {
        self.readable().retry(|| self.get_ref().try_request()).await
    }
}
