//! A bound window becomes free only through a completion.
use ibverbs::mw::{BoundWindow, Type2, Window};

fn rule(bound: BoundWindow<Type2>) -> Window<Type2> {
    bound.into()
}

fn main() {}
