//! A completion is not `Clone`: a request retires once.
use ibverbs::Completion;

fn rule<'cq>(completion: &Completion<'cq>) -> Completion<'cq> {
    Clone::clone(completion)
}

fn main() {}
