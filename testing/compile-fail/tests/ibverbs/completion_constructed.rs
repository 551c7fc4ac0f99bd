//! A completion cannot be constructed: only a poll returns one.
use ibverbs::Completion;

fn main() {
    let entry = Default::default();
    let _constructed = Completion { wc: &entry };
}
