//! The kernels of `kernels.c`.
#![allow(unsafe_code, reason = "starts kernels")]

use std::ffi::CStr;

use crate::cuda::Cuda;
use crate::memory::HostMemory;

/// Blocks and threads of the kernels that use the whole GPU.
const GRID: (u32, u32) = (264, 256);

/// Size of a word of a pattern in bytes.
pub const WORD: u64 = 8;

#[derive(Clone, Copy)]
#[repr(C)]
struct Pattern {
    address: u64,
    words: u64,
    seed: u64,
    mismatch: u64,
}

/// Returns a word of a pattern, as the kernels compute it.
pub fn word(seed: u64, index: u64) -> u64 {
    seed.wrapping_add(index).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Returns the first bytes of a pattern.
pub fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let words = len.div_ceil(8) as u64;
    let mut bytes: Vec<u8> = (0..words)
        .flat_map(|index| word(seed, index).to_ne_bytes())
        .collect();
    bytes.truncate(len);
    bytes
}

/// Fills memory of the GPU with a pattern.
///
/// # Safety
/// The memory is allocated, and nothing else accesses it.
pub unsafe fn fill(cuda: &Cuda, address: u64, words: u64, seed: u64) {
    // SAFETY: guaranteed by the caller.
    unsafe { run(cuda, c"fill", address, words, seed) };
}

/// Compares memory of the GPU with a pattern. Returns the index of a word that differs.
///
/// # Safety
/// The memory is allocated, and nothing writes to it.
pub unsafe fn check(cuda: &Cuda, address: u64, words: u64, seed: u64) -> Option<u64> {
    // SAFETY: guaranteed by the caller.
    unsafe { run(cuda, c"check", address, words, seed) }.checked_sub(1)
}

/// Runs a kernel on a pattern. Returns the field `mismatch`.
///
/// # Safety
/// The kernel may access the memory.
unsafe fn run(cuda: &Cuda, kernel: &CStr, address: u64, words: u64, seed: u64) -> u64 {
    let mut argument = HostMemory::new(cuda, 1);
    let pattern = Pattern {
        address,
        words,
        seed,
        mismatch: 0,
    };
    argument.set(0, pattern);
    // SAFETY: guaranteed by the caller.
    unsafe { cuda.launch(kernel, GRID.0, GRID.1, argument.address()) }
    argument.get(0).mismatch
}

/// Opcodes of mlx5, from `mlx5dv.h`.
pub mod opcode {
    /// `MLX5_OPCODE_RDMA_WRITE`.
    pub const RDMA_WRITE: u32 = 0x08;
    /// `MLX5_OPCODE_RDMA_WRITE_IMM`.
    pub const RDMA_WRITE_IMM: u32 = 0x09;
    /// `MLX5_OPCODE_SEND`.
    pub const SEND: u32 = 0x0a;
    /// `MLX5_OPCODE_SEND_IMM`.
    pub const SEND_IMM: u32 = 0x0b;
    /// `MLX5_OPCODE_RDMA_READ`.
    pub const RDMA_READ: u32 = 0x10;
    /// `MLX5_OPCODE_ATOMIC_CS`.
    pub const ATOMIC_CS: u32 = 0x11;
    /// `MLX5_OPCODE_ATOMIC_FA`.
    pub const ATOMIC_FA: u32 = 0x12;
}

/// A work request that a kernel writes.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Request {
    /// One of [`opcode`].
    pub opcode: u32,
    /// 1 if the adapter writes a completion.
    pub signaled: u32,
    /// Address at the peer.
    pub remote: u64,
    /// Local address.
    pub local: u64,
    /// Key of the peer's memory.
    pub rkey: u32,
    /// Key of the local memory.
    pub lkey: u32,
    /// Length in bytes.
    pub length: u32,
    /// Immediate data.
    pub immediate: u32,
    /// Operand of an atomic operation.
    pub swap_or_add: u64,
    /// Operand of a compare-and-swap.
    pub compare: u64,
}

/// A completion that a kernel has read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Entry {
    /// `MLX5_CQE_REQ` (0), or `MLX5_CQE_REQ_ERR` (13).
    pub kind: u32,
    /// Number of the block of the request.
    pub block: u32,
    /// Syndrome of a failed request.
    pub syndrome: u32,
    /// Always 0.
    pub reserved: u32,
}

/// Queues of mlx5, and the requests that the kernel writes to them.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Post {
    /// Address of the send queue.
    pub queue: u64,
    /// Address of its doorbell record.
    pub record: u64,
    /// Address of the register.
    pub doorbell: u64,
    /// Address of the completion queue.
    pub entries: u64,
    /// Address of the [`Request`]s.
    pub requests: u64,
    /// Address for each [`Entry`] that the kernel finds.
    pub found: u64,
    /// Number of blocks of the send queue.
    pub blocks: u32,
    /// Number of the queue pair.
    pub number: u32,
    /// Number of the next block.
    pub next_block: u32,
    /// Number of requests.
    pub request_count: u32,
    /// Number of the next entry of the completion queue.
    pub next_entry: u32,
    /// Number of entries of the completion queue.
    pub entry_count: u32,
    /// Size of an entry in bytes.
    pub entry_size: u32,
    /// Number of completions to wait for.
    pub expected: u32,
    /// Number of times that the kernel looks for a completion.
    pub spins: u64,
    /// Number of completions that the kernel has found.
    pub completed: u32,
    /// Always 0.
    pub reserved: u32,
}

/// Lets a kernel write requests, ring the doorbell, and wait for the completions.
///
/// # Panics
/// Panics if CUDA fails.
///
/// # Safety
/// The addresses are those of queues that were exposed, as
/// [`QueuePair::expose_queues`](https://docs.rs/rdma-verbs) requires, and registered with CUDA.
pub unsafe fn post(cuda: &Cuda, post: Post, requests: &[Request]) -> Vec<Entry> {
    let mut written = HostMemory::new(cuda, requests.len());
    for (index, request) in requests.iter().enumerate() {
        written.set(index, *request);
    }
    let found = HostMemory::<Entry>::new(cuda, requests.len());
    let mut argument = HostMemory::new(cuda, 1);
    let count = u32::try_from(requests.len()).expect("few requests");
    let expected = requests.iter().map(|request| request.signaled).sum();
    argument.set(
        0,
        Post {
            requests: written.address(),
            found: found.address(),
            request_count: count,
            expected,
            // The kernel of the model yields the processor each time.
            spins: 20_000_000,
            ..post
        },
    );
    // SAFETY: guaranteed by the caller.
    unsafe { cuda.launch(c"post", 1, 1, argument.address()) }
    (0..argument.get(0).completed as usize)
        .map(|index| found.get(index))
        .collect()
}
