//! The slice owns the buffer, so nothing reads it while a READ writes it.
use ibverbs::Buf;

fn rule(buf: Buf) -> u8 {
    let _slice = buf.into_slice(0..8);
    buf[0]
}

fn main() {}
