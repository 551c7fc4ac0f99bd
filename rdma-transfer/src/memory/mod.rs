//! Regions: memory that is registered with all devices.

mod lent;
pub(crate) mod region;
