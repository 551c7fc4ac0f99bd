//! Links of PCIe.

use serde::{Deserialize, Serialize};

/// The PCIe link of an adapter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PciLink {
    /// The current speed, for example `8.0 GT/s PCIe`.
    pub current_speed: String,
    /// The number of lanes in use.
    pub current_width: u32,
    /// The highest speed that the adapter supports.
    pub max_speed: String,
    /// The number of lanes of the adapter.
    pub max_width: u32,
}

impl PciLink {
    /// Returns the current speed of a lane in GT/s.
    pub fn current_transfers(&self) -> f32 {
        gigatransfers(&self.current_speed)
    }

    /// Returns the highest speed of a lane in GT/s.
    pub fn max_transfers(&self) -> f32 {
        gigatransfers(&self.max_speed)
    }

    /// Returns the approximate data rate in one direction, in Gbit/s.
    pub fn gbps(&self) -> Option<u32> {
        // Data rate of one lane in tenths of a Gbit/s. The encoding overhead is subtracted.
        let lane = match self.current_speed.split_whitespace().next()? {
            "2.5" => 20,
            "5.0" | "5" => 40,
            "8.0" | "8" => 79,
            "16.0" | "16" => 158,
            "32.0" | "32" => 315,
            "64.0" | "64" => 605,
            _ => return None,
        };
        Some(lane * self.current_width.min(64) / 10)
    }
}

/// Returns the number in a PCIe speed such as `8.0 GT/s PCIe`.
fn gigatransfers(text: &str) -> f32 {
    text.split_whitespace()
        .next()
        .and_then(|number| number.parse().ok())
        .unwrap_or(0.0)
}
