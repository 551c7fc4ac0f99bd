//! Options of the model.

use std::env;

/// Link layer of the port.
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Options {
    /// Link layer of the port. Default: `Link::InfiniBand`.
    pub link: Link,
    /// Drive mode. Default: `Drive::Thread`.
    pub drive: Drive,
}

impl Options {
    /// Returns the default options.
    pub const fn new() -> Self {
        Self {
            link: Link::InfiniBand,
            drive: Drive::Thread,
        }
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

    /// Reads the options of a preloaded model. Returns `None` if `NIC_MODEL` is not set.
    pub(crate) fn from_environment() -> Option<Self> {
        let device = env::var("NIC_MODEL").ok()?;
        if device != "mlx5_0" {
            eprintln!("nic-model: no model of the device {device}; available: mlx5_0");
            std::process::exit(2);
        }
        let is = |name: &str, value: &str| env::var(name).is_ok_and(|text| text == value);
        let mut options = Self::new();
        if is("NIC_MODEL_LINK", "ethernet") {
            options = options.link(Link::Ethernet);
        }
        if is("NIC_MODEL_DRIVE", "step") {
            options = options.drive(Drive::Step);
        }
        Some(options)
    }
}
