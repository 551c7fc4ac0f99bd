//! Memory windows have two types.
use ibverbs::mw::Window;

fn rule(_: Window<u8>) {}

fn main() {}
