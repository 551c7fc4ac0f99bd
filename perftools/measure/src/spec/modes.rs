//! Modes of a test: use of rdma_cm, and waiting for completions.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Use of rdma_cm to establish the connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Cm {
    /// Only if the device requires it, which iWARP does.
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
            _ => Err(format!("invalid value `{text}`; expected: on, off, auto")),
        }
    }
}

/// Way in which an end waits for completions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Wait {
    /// Poll briefly, then wait for an event.
    #[default]
    Adaptive,
    /// Poll without pause.
    Poll,
    /// Wait for an event without polling first.
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
            _ => Err(format!(
                "invalid value `{text}`; expected: adaptive, poll, events"
            )),
        }
    }
}
