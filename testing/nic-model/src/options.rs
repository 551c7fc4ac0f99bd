//! Options of the model.

use std::env;

use crate::fault::{DeviceFault, Planned};

/// Names of the adapters of libmlx5.
pub(crate) const MLX5_NAMES: [&str; 4] = ["mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3"];

/// The device that the model shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Device {
    /// `mlx5_0`, the adapter of libmlx5.
    #[default]
    Mlx5,
    /// `efa_0`, the adapter of libefa.
    Efa,
}

impl Device {
    const ALL: [Self; 2] = [Self::Mlx5, Self::Efa];

    /// Returns the name of the device.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mlx5 => "mlx5_0",
            Self::Efa => "efa_0",
        }
    }
}

/// Link layer of the port of `mlx5_0`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Link {
    /// InfiniBand, with a link-local GID and LID 1.
    #[default]
    InfiniBand,
    /// Ethernet (RoCE v2), with the GIDs of the loopback interface.
    Ethernet,
}

/// The part of the program that runs the adapter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Drive {
    /// A thread that starts when the first device is opened.
    #[default]
    Thread,
    /// The program itself, with [`step`](crate::step). Time advances with the steps only.
    Step,
}

/// Options of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Options {
    /// Device. Default: `Device::Mlx5`.
    pub device: Device,
    /// Link layer of the port. Default: `Link::InfiniBand`.
    pub link: Link,
    /// Drive mode. Default: `Drive::Thread`.
    pub drive: Drive,
    /// Number of adapters `mlx5_0`, `mlx5_1` and so on, 1 to 4. Several ones reach no other
    /// process. Default: `1`.
    pub adapters: usize,
    pub(crate) fault: Option<Planned>,
}

impl Default for Options {
    fn default() -> Self {
        Self::new()
    }
}

impl Options {
    /// Returns the default options.
    pub const fn new() -> Self {
        Self {
            device: Device::Mlx5,
            link: Link::InfiniBand,
            drive: Drive::Thread,
            adapters: 1,
            fault: None,
        }
    }

    /// Sets [`device`](Self::device).
    #[must_use]
    pub const fn device(mut self, device: Device) -> Self {
        self.device = device;
        self
    }

    /// Sets [`link`](Self::link).
    #[must_use]
    pub const fn link(mut self, link: Link) -> Self {
        self.link = link;
        self
    }

    /// Sets [`drive`](Self::drive).
    #[must_use]
    pub const fn drive(mut self, drive: Drive) -> Self {
        self.drive = drive;
        self
    }

    /// Sets [`adapters`](Self::adapters).
    ///
    /// # Panics
    /// Panics if the number is not 1 to 4.
    #[must_use]
    pub const fn adapters(mut self, adapters: usize) -> Self {
        assert!(adapters >= 1 && adapters <= MLX5_NAMES.len());
        self.adapters = adapters;
        self
    }

    /// Reads the options of a preloaded model. Returns `None` if `NIC_MODEL` is not set.
    pub(crate) fn from_environment() -> Option<Self> {
        let name = env::var("NIC_MODEL").ok()?;
        let named = |device: &Device| device.name() == name;
        let Some(device) = Device::ALL.into_iter().find(named) else {
            let names = Device::ALL.map(Device::name).join(", ");
            eprintln!("nic-model: no model of the device {name}; available: {names}");
            std::process::exit(2);
        };
        let is = |name: &str, value: &str| env::var(name).is_ok_and(|text| text == value);
        let mut options = Self::new().device(device);
        if is("NIC_MODEL_LINK", "ethernet") {
            options = options.link(Link::Ethernet);
        }
        if is("NIC_MODEL_DRIVE", "step") {
            options = options.drive(Drive::Step);
        }
        if let Ok(text) = env::var("NIC_MODEL_FAULT") {
            options.fault = Planned::parse(&text);
            if options.fault.is_none() {
                let names = DeviceFault::ALL.map(|(name, _)| name).join(", ");
                eprintln!(
                    "nic-model: NIC_MODEL_FAULT={text}: expected FAULT@PACKETS; faults: {names}"
                );
                std::process::exit(2);
            }
        }
        Some(options)
    }
}
