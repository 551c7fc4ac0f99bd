//! Tests of the safe verbs on devices. `ci/guest/device-tests` runs each module alone.

mod lab;

#[cfg(feature = "efa")]
mod counters;
mod cq;
mod datagram;
#[cfg(feature = "mlx5")]
mod dc;
mod dmabuf;
mod errors;
mod events;
#[cfg(feature = "mlx5")]
mod exposed;
mod flush;
mod fork;
mod gids;
mod groups;
mod info;
mod lists;
mod loopback;
mod memory;
mod newer;
mod one_sided;
mod post_states;
mod regions;
mod scope;
#[cfg(feature = "efa")]
mod source_gid;
#[cfg(feature = "efa")]
mod srd;
mod srq;
mod states;
mod threads;
#[cfg(feature = "tokio")]
mod tokio;
mod unsupported;
mod windows;
