//! Whoever brings memory of his own says so with `unsafe`.
use ibverbs::mr::CallerMemory;
use std::ptr::NonNull;

fn rule(start: NonNull<u8>) -> CallerMemory {
    CallerMemory::new(start, 64, ())
}

fn main() {}
