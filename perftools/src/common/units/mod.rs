//! Sizes, times and rates: read as qperf reads them, printed as qperf prints them.
//!
//! Reading: `k`, `kb`, `m`, `mb`, `g`, `gb` are decimal, `K`, `kib`, `M`, `mib`, `G`, `gib` binary.
//! A time is in seconds unless it ends in `us`, `ms`, `s`, `m`, `h` or `d`. Printing: three
//! significant digits by default, no trailing zeros, commas between thousands, decimal units; a
//! size in binary units when it is an exact multiple of 1024.

mod figure;
mod parse;

pub use figure::{Figure, Style};
pub use parse::{Size, parse_time, show_time};
