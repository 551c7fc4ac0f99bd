//! Memory that peers may read is filled once: the reference does not leave the closure.
use ibverbs::{MemoryOptions, ProtectionDomain};

fn rule(pd: &ProtectionDomain) {
    let mut kept: Option<&mut [u8]> = None;
    let _frozen = pd.frozen_shared(64, MemoryOptions::default(), |bytes| kept = Some(bytes));
}

fn main() {}
