//! Memory that is only borrowed may be freed while it is registered.
use ibverbs::{Frozen, ProtectionDomain, Result};

fn rule(pd: &ProtectionDomain) -> Result<Frozen> {
    let text = String::from("local");
    pd.frozen_from(text.as_str())
}

fn main() {}
