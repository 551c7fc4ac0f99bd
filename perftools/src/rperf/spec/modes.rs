//! Choices of a test: whether rdma_cm connects it, and how an endpoint waits for completions.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Whether rdma_cm sets the connection up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Cm {
    /// Where the device can connect no other way (iWARP).
    #[default]
    Auto,
    /// Always.
    On,
    /// Never.
    Off,
}

impl FromStr for Cm {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "off" | "no" | "0" => Ok(Self::Off),
            "on" | "yes" => Ok(Self::On),
            n if n.parse::<u32>().is_ok() => Ok(Self::On),
            _ => Err(format!("`{text}`: say on, off or auto")),
        }
    }
}

/// How an end waits for completions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Wait {
    /// Poll briefly, then sleep.
    #[default]
    Adaptive,
    /// Poll only.
    Poll,
    /// Sleep at once.
    Events,
}

impl FromStr for Wait {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text {
            "adaptive" | "auto" => Ok(Self::Adaptive),
            "events" | "0" => Ok(Self::Events),
            "poll" => Ok(Self::Poll),
            n if n.parse::<u32>().is_ok() => Ok(Self::Poll),
            _ => Err(format!("`{text}`: say adaptive, poll or events")),
        }
    }
}
