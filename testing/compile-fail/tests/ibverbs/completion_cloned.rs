//! A completion is not `Clone`: it retires one request.
use ibverbs::Completion;

fn rule<'cq>(completion: &Completion<'cq>) -> Completion<'cq> {
    Clone::clone(completion)
}

fn main() {}
