//! Frozen memory that peers can read is writable only inside the closure that fills it.
use ibverbs::{MemoryOptions, ProtectionDomain};

fn rule(pd: &ProtectionDomain) {
    let mut kept: Option<&mut [u8]> = None;
    let _frozen = pd.frozen_shared(64, MemoryOptions::default(), |bytes| kept = Some(bytes));
}

fn main() {}
