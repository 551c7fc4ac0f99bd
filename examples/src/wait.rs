//! Waiting for completions: polling, or asleep until the completion queue reports.

use std::time::{Duration, Instant};

use ibverbs::{
    Completion, CompletionChannel, CompletionQueue, DuplexTransport, QueuePair, Retired,
};

use crate::Result;

/// How long nothing may complete before a program gives up.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// Hands completions to `handle` as they come, until it says `true`.
///
/// With a channel it sleeps in between: it arms the queue, polls once more, as an entry that came
/// before arming gives no event, and only then waits. Without one it polls, and lets others run
/// while there is nothing.
///
/// # Errors
/// What `handle` returns, and nothing for [`PATIENCE`].
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
        let left = PATIENCE.checked_sub(last.elapsed()).ok_or_else(silence)?;
        match channel {
            None => std::thread::yield_now(),
            Some(_) if !armed => {
                cq.arm(false)?;
                armed = true;
            }
            Some(channel) => {
                channel.wait(Some(left))?;
                armed = false;
            }
        }
    }
}

/// Polls for the end of one request of `qp`: for programs that do one thing at a time.
///
/// # Errors
/// As [`until`]; a request that failed is not an error here.
pub fn one<T: DuplexTransport>(cq: &mut CompletionQueue, qp: &mut QueuePair<T>) -> Result<Retired> {
    let mut retired = None;
    until(cq, None, |completion| {
        retired = Some(qp.retire(completion)?);
        Ok(true)
    })?;
    retired.ok_or_else(|| silence().into())
}

/// What to say when nothing happens.
pub fn silence() -> String {
    format!(
        "nothing completed for {} s: is the peer still there, with the same sizes and counts?",
        PATIENCE.as_secs()
    )
}
