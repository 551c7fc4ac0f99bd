//! The sending half of XRC cannot receive, so `create_qp` does not create it.
use ibverbs::{CompletionQueue, ProtectionDomain, QpOptions, xrc::XrcSend};

fn rule(pd: &ProtectionDomain, cq: &CompletionQueue) {
    let _ = pd.create_qp::<XrcSend>(cq, cq, QpOptions::default());
}

fn main() {}
