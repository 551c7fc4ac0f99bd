//! An RC queue pair cannot receive from a shared receive queue of an XRC domain.
use ibverbs::{CompletionQueue, ProtectionDomain, QpOptions, Rc, SharedReceiveQueue, xrc::Xrc};

fn rule(pd: &ProtectionDomain, cq: &CompletionQueue, srq: &SharedReceiveQueue<Xrc>) {
    let _ = pd.create_qp_with_srq::<Rc>(cq, cq, srq, QpOptions::default());
}

fn main() {}
