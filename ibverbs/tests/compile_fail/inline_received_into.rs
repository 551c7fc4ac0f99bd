//! Borrowed bytes cannot be received into: they may go before the message comes.
use ibverbs::wr;

fn rule(bytes: &mut [u8]) {
    let _ = wr::recv(wr::Inline(bytes));
}

fn main() {}
