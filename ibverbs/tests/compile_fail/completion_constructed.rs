//! A completion cannot be made by hand: only a poll makes one.
use ibverbs::Completion;

fn main() {
    let entry = Default::default();
    let _forged = Completion { wc: &entry };
}
