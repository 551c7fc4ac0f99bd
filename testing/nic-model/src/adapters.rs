//! The adapters that the model has.

use crate::nic::efa::{self, Efa};
use crate::nic::mlx5::{self, Mlx5};
use crate::nic::{Identity, Nic};
use crate::options::{Device, MLX5_NAMES, Options};

/// Returns the facts that sysfs and the core report.
pub(crate) fn identity(options: Options) -> Identity {
    match options.device {
        Device::Mlx5 => mlx5::identity(options.link),
        Device::Efa => efa::identity(),
    }
}

/// Returns the facts of one of several adapters. They differ in their names only, and each has a
/// network of its own.
pub(crate) fn numbered(options: Options, number: usize) -> Identity {
    let mut identity = identity(options);
    if options.device == Device::Mlx5 {
        identity.name = MLX5_NAMES[number];
    }
    identity
}

/// Creates the adapter.
pub(crate) fn create(device: Device) -> Box<dyn Nic> {
    match device {
        Device::Mlx5 => Box::new(Mlx5::new()),
        Device::Efa => Box::new(Efa::new()),
    }
}
