//! Waits for completions, by polling or by sleeping on a completion channel.

use std::time::{Duration, Instant};

use ibverbs::{
    Completion, CompletionChannel, CompletionQueue, DuplexTransport, QueuePair, Retired,
};

use crate::Result;

/// Time without any completion after which a program fails.
pub const TIMEOUT: Duration = Duration::from_secs(10);

/// Passes completions to `handle` until it returns `true`.
///
/// With a channel, the function sleeps while the queue is empty: it arms the queue, polls again
/// because an entry added before arming causes no event, and then waits for the event. Without a
/// channel it polls, and yields the CPU while the queue is empty.
///
/// # Errors
/// `handle` fails, or nothing completes for [`TIMEOUT`].
pub fn until(
    cq: &mut CompletionQueue,
    channel: Option<&CompletionChannel>,
    mut handle: impl FnMut(Completion<'_>) -> Result<bool>,
) -> Result<()> {
    let (mut last, mut armed) = (Instant::now(), false);
    loop {
        let mut idle = true;
        for completion in cq.poll()? {
            idle = false;
            if handle(completion)? {
                return Ok(());
            }
        }
        if !idle {
            last = Instant::now();
            continue;
        }
        let remaining = TIMEOUT
            .checked_sub(last.elapsed())
            .ok_or_else(timeout_message)?;
        match channel {
            None => std::thread::yield_now(),
            Some(_) if !armed => {
                cq.arm(false)?;
                armed = true;
            }
            Some(channel) => {
                channel.wait(Some(remaining))?;
                armed = false;
            }
        }
    }
}

/// Polls for the completion of one request of `qp`, for programs with one request in flight.
///
/// # Errors
/// The same as for [`until`]. A request that completed with an error status is returned as `Ok`.
pub fn one<T: DuplexTransport>(cq: &mut CompletionQueue, qp: &mut QueuePair<T>) -> Result<Retired> {
    let mut retired = None;
    until(cq, None, |completion| {
        retired = Some(qp.retire(completion)?);
        Ok(true)
    })?;
    retired.ok_or_else(|| timeout_message().into())
}

/// Returns the error message of a timeout.
fn timeout_message() -> String {
    format!(
        "wait for completions: none for {} s\n\
         help: check that the peer is running with the same sizes and counts",
        TIMEOUT.as_secs()
    )
}
