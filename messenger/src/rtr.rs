//! Repeating the first message of an iWARP connection until the peer has seen it.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::endpoint::Endpoint;
use super::state::State;

/// Time until the first empty WRITE. The later ones follow at twice the distance of the one before.
const FIRST_PAUSE: Duration = Duration::from_millis(20);

/// Longest time between two empty WRITEs.
const MAX_PAUSE: Duration = Duration::from_secs(1);

/// Posts empty WRITEs until the peer's greeting has arrived or the connection has ended.
///
/// The passive side of Soft-iWARP does not notice data that arrives before its kernel has finished
/// accepting, until more data arrives (docs/drivers.md, fault 50). The greeting of the active side
/// can be such data. An empty WRITE is the RTR message of RFC 6581: it changes nothing else.
pub(crate) fn start(endpoint: &Arc<Endpoint>) {
    let endpoint = Arc::downgrade(endpoint);
    let run = move || {
        let mut pause = FIRST_PAUSE;
        loop {
            thread::sleep(pause);
            let is_waiting = endpoint
                .upgrade()
                .is_some_and(|endpoint| endpoint.with(State::post_rtr));
            if !is_waiting {
                return;
            }
            pause = (2 * pause).min(MAX_PAUSE);
        }
    };
    // Without the thread, a greeting that the peer has not noticed becomes an error after the time
    // limit of the caller.
    let _ = thread::Builder::new()
        .name("messenger-rtr".into())
        .spawn(run);
}
