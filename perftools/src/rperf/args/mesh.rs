//! The command line of `rperf mesh`.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// Order in which the pairs of hosts are measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// All ordered pairs, in rounds in which no port is used twice
    #[default]
    Pairs,
    /// Each port sends to the next one, all at once
    Ring,
    /// Each port of the first half sends to one of the second half, all at once, then back
    Bisect,
    /// All other ports send to one port at once; each port in turn
    Incast,
    /// One port sends to all other ports at once; each port in turn
    Outcast,
    /// Each port sends to all other ports, all at once
    AllToAll,
}
