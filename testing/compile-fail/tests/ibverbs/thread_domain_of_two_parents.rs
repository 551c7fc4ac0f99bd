//! A thread domain belongs to one parent domain.
use ibverbs::{ProtectionDomain, Result, pd::ThreadDomain};

fn rule(pd: &ProtectionDomain, td: ThreadDomain) -> Result<()> {
    let _a = pd.alloc_parent_domain(td)?;
    let _b = pd.alloc_parent_domain(td)?;
    Ok(())
}

fn main() {}
