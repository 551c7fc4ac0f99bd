//! The handles of the program: the engine, its peers and transfers with them.

pub(crate) mod engine;
pub(crate) mod group;
pub(crate) mod peer;
pub(crate) mod transfer;
