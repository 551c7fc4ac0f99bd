//! Only a completion makes a bound window free.
use ibverbs::mw::{BoundWindow, Type2, Window};

fn rule(bound: BoundWindow<Type2>) -> Window<Type2> {
    bound.into()
}

fn main() {}
