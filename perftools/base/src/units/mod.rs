//! Parsing and formatting of sizes, times and rates, compatible with qperf.
//!
//! - Parsing: `k`, `kb`, `m`, `mb`, `g` and `gb` are decimal units; `K`, `kib`, `M`, `mib`, `G` and
//!   `gib` are binary units. A time is in seconds unless it ends in a unit such as `us`, `ms`, `s`,
//!   `m`, `h` or `d`.
//! - Formatting: three significant digits by default, no trailing zeros, commas between thousands
//!   and decimal units. A size that is a multiple of 1024 has a binary unit.

mod figure;
mod parse;

pub use figure::{Figure, Style};
pub use parse::{Rate, Size, parse_time, show_time};
