//! A completion field is enabled or disabled.
use ibverbs::cq_ex::CqFields;

fn rule(_: CqFields<bool>) {}

fn main() {}
