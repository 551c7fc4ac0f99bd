//! Registering memory owned by the caller requires `unsafe`.
use ibverbs::mr::CallerMemory;
use std::ptr::NonNull;

fn rule(start: NonNull<u8>) -> CallerMemory {
    CallerMemory::new(start, 64, ())
}

fn main() {}
