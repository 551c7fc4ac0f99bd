//! Memory that a test takes on its host: buffers, queues and stacks. A server reserves it before
//! the test begins.

use base::threads::SESSION_STACK;

use super::config::Spec;
use super::fit::Bounds;
use super::limits::ARRIVALS_WINDOW;
use super::shape::Shape;

/// Stack size in bytes of the thread that reads a control connection.
pub const CONTROL_STACK: usize = 256 << 10;
/// Stack size in bytes of each thread that moves the data of a test with several threads.
pub(crate) const ENGINE_STACK: usize = 256 << 10;

/// Memory in bytes for a request in a send queue: the entry in the queue, which is largest in
/// Soft-RoCE, and the entry in the table of requests in flight. The test
/// `server::reservations_cover_the_memory_of_a_test` measures it.
const SEND_SLOT: u64 = 448;
/// Memory in bytes for a request in a receive queue.
const RECV_SLOT: u64 = 160;
/// Memory in bytes for an entry in a completion queue.
const CQ_ENTRY: u64 = 64;
/// Memory in bytes for a queue pair without its queues, and for a completion queue.
const QUEUE_OBJECT: u64 = 64 << 10;

/// Resources that a test takes on its host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    /// Memory in bytes.
    pub memory: u64,
    /// Threads that move data.
    pub threads: u32,
    /// Queue pairs, or targets of DC.
    pub qps: u32,
}

impl Spec {
    /// Returns the maximum resources of one end. A device with small limits takes less
    /// ([`Shape::footprint`]).
    pub fn footprint(&self) -> Footprint {
        let session = (SESSION_STACK + CONTROL_STACK) as u64;
        if self.test.socket().is_some() {
            // The kernel has a buffer for each direction.
            let buffers =
                2 * u64::from(self.sockets.client_buffers.max(self.sockets.server_buffers));
            let streams = self.sockets.streams();
            let stack = if streams > 1 { ENGINE_STACK as u64 } else { 0 };
            let stream = self.msg_size + buffers + ARRIVALS_WINDOW / 8 + stack;
            return Footprint {
                memory: session.saturating_add(stream.saturating_mul(streams.into())),
                threads: streams,
                qps: 0,
            };
        }
        match self.fit(&Bounds::unlimited()) {
            Ok(mut shape) => {
                shape.qps = shape.qps.max(shape.receivers);
                shape.footprint()
            }
            // The specification is checked again before the test begins, with the limits of the
            // device, which are not higher.
            Err(_) => Footprint {
                memory: session,
                ..Footprint::default()
            },
        }
    }
}

impl Shape {
    /// Returns the resources of one end, with the threads that serve the client.
    pub fn footprint(&self) -> Footprint {
        // Drivers round the sizes of queues up.
        let slots = |n: u32| u64::from(n + 1).next_power_of_two();
        let (qps, receive_queues) = (u64::from(self.qps), u64::from(self.receive_queues()));
        let sends = slots(self.send_queue_len()) * SEND_SLOT;
        let receives = slots(self.receives()) * RECV_SLOT;
        let completions = slots(self.completions());
        let arrivals = if self.is_reliable() {
            0
        } else {
            ARRIVALS_WINDOW / 8
        };
        let stack = if self.threads > 1 {
            ENGINE_STACK as u64
        } else {
            0
        };
        let targets = self.plan.service.targets(&self.tuning);
        let thread = qps * (sends + QUEUE_OBJECT * u64::from(targets) + arrivals)
            + receive_queues * receives
            + completions * CQ_ENTRY
            + QUEUE_OBJECT
            + stack;
        Footprint {
            memory: (SESSION_STACK + CONTROL_STACK) as u64
                + self.memory()
                + thread * u64::from(self.threads),
            threads: self.threads,
            qps: self
                .threads
                .saturating_mul(self.qps)
                .saturating_mul(targets),
        }
    }
}
