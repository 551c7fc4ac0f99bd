//! Datagram service requests awaited on tokio.

use ibverbs::Result;

use super::{ServiceListener, ServiceRequest};
use crate::passive::AsyncListener;

impl AsyncListener<ServiceListener> {
    /// As for [connections](AsyncListener::new).
    ///
    /// # Errors
    /// As there.
    ///
    /// # Panics
    /// As there.
    pub fn new_datagram(listener: ServiceListener) -> Result<Self> {
        let channel = listener.channel().clone();
        Self::with_channel(listener, &channel)
    }

    /// Awaits a request. A dropped future loses none.
    ///
    /// # Errors
    /// As [`ServiceListener::accept`].
    ///
    /// # References
    /// [`rdma_get_cm_event(3)`](https://man7.org/linux/man-pages/man3/rdma_get_cm_event.3.html)
    pub async fn accept(&self) -> Result<ServiceRequest> {
        self.readable().retry(|| self.get_ref().try_accept()).await
    }
}
