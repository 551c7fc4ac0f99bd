//! Dynamically connected transport (DC) of mlx5: reliable requests to any number of targets.
//!
//! This module needs the feature `mlx5`, which loads libmlx5. An initiator, a
//! [`QueuePair<Dc>`](Dc), sends to any [`DcTarget`]. The adapter connects it to the target of each
//! request, and disconnects it before the next one, so a process needs only a few queue pairs for
//! any number of peers. A [`QueuePair<DcStreams>`](DcStreams) executes several independent
//! sequences of requests at the same time.

mod initiator;
mod streams;
mod target;

pub use self::initiator::{Dc, DcDestination, DcKey};
pub use self::streams::{DcStreams, StreamDestination, StreamLimits};
pub use self::target::DcTarget;
