//! A message is received into a whole buffer, whose length becomes that of the message.
use ibverbs::{mr::BufSlice, wr};

fn rule(slice: BufSlice) {
    let _ = wr::recv(slice);
}

fn main() {}
