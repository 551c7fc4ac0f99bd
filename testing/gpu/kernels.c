/*
 * Kernels of the GPU tests. `ci/gpu build` compiles them with clang for a GPU and compares the
 * result with kernels.ptx. The model of libcuda compiles them for the processor.
 *
 * Each kernel has one argument: the address of a structure in host memory, which the test has
 * registered with CUDA. lib.rs has the same structures.
 */

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;

#ifdef __CUDA__
#define KERNEL(name) extern "C" __attribute__((global)) void name(u64 argument)
#define FUNCTION __attribute__((device)) static inline
#define AT(type, address) ((volatile type *)(address))
FUNCTION u64 first(void) {
    return (u64)__nvvm_read_ptx_sreg_ctaid_x() * __nvvm_read_ptx_sreg_ntid_x() +
           __nvvm_read_ptx_sreg_tid_x();
}
FUNCTION u64 threads(void) {
    return (u64)__nvvm_read_ptx_sreg_nctaid_x() * __nvvm_read_ptx_sreg_ntid_x();
}
/* Orders memory accesses for the whole system: the adapter is outside of the GPU. */
FUNCTION void fence(void) { __nvvm_membar_sys(); }
FUNCTION void pause_spin(void) {}
#else
#include <sched.h>
#define KERNEL(name) void cuda_model_kernel_##name(u64 argument)
#define FUNCTION static inline
/* The model's addresses are not those of the process. */
void *cuda_model_at(u64 address);
#define AT(type, address) ((volatile type *)cuda_model_at((u64)(address)))
FUNCTION u64 first(void) { return 0; }
FUNCTION u64 threads(void) { return 1; }
FUNCTION void fence(void) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
FUNCTION void pause_spin(void) { sched_yield(); }
#endif

FUNCTION u32 be32(u32 x) { return x << 24 | (x & 0xff00) << 8 | (x >> 8 & 0xff00) | x >> 24; }
FUNCTION u64 be64(u64 x) { return (u64)be32((u32)x) << 32 | be32((u32)(x >> 32)); }

struct pattern {
    u64 address;
    u64 words;
    u64 seed;
    /* Number of a word that differs, from 1; 0: none. */
    u64 mismatch;
};

FUNCTION u64 word(u64 seed, u64 index) { return (seed + index) * 0x9e3779b97f4a7c15ull; }

/* Writes a pattern of 8-byte words. */
KERNEL(fill) {
    volatile struct pattern *pattern = AT(struct pattern, argument);
    volatile u64 *to = AT(u64, pattern->address);
    u64 words = pattern->words, seed = pattern->seed;
    for (u64 index = first(); index < words; index += threads()) to[index] = word(seed, index);
}

/* Compares memory with the pattern. */
KERNEL(check) {
    volatile struct pattern *pattern = AT(struct pattern, argument);
    volatile u64 *from = AT(u64, pattern->address);
    u64 words = pattern->words, seed = pattern->seed;
    for (u64 index = first(); index < words; index += threads())
        if (from[index] != word(seed, index)) pattern->mismatch = index + 1;
}

/* A work request of at most one block of 64 bytes. */
struct request {
    u32 opcode;
    /* 1: the adapter writes a completion. */
    u32 signaled;
    u64 remote;
    u64 local;
    u32 rkey;
    u32 lkey;
    u32 length;
    u32 immediate;
    /* Operands of an atomic operation. */
    u64 swap_or_add;
    u64 compare;
};

/* A completion. */
struct entry {
    u32 kind;
    u32 block;
    u32 syndrome;
    u32 reserved;
};

/* The queues of mlx5 that were exposed, and the requests to write. */
struct post {
    u64 queue;
    u64 record;
    u64 doorbell;
    u64 entries;
    u64 requests;
    u64 found;
    u32 blocks;
    u32 number;
    u32 next_block;
    u32 request_count;
    u32 next_entry;
    u32 entry_count;
    u32 entry_size;
    u32 expected;
    /* Number of times that a completion is looked for. */
    u64 spins;
    /* Number of completions that were found. */
    u32 completed;
    u32 reserved;
};

enum {
    RDMA_WRITE = 0x08,
    RDMA_WRITE_IMM = 0x09,
    SEND = 0x0a,
    SEND_IMM = 0x0b,
    RDMA_READ = 0x10,
    ATOMIC_CS = 0x11,
    ATOMIC_FA = 0x12,
    SIGNALED = 8,
    INVALID_ENTRY = 15,
};

/* Writes the segments of a request. Returns the first 8 bytes of the block, as in memory. */
FUNCTION u64 write_request(volatile struct post *post, u32 index, volatile struct request *request) {
    u32 number = (post->next_block + index) & 0xffff, opcode = request->opcode;
    u64 block = post->queue + (u64)(number % post->blocks) * 64;
    volatile u64 *to = AT(u64, block);
    u32 at = 2;
    if (opcode != SEND && opcode != SEND_IMM) {
        to[at++] = be64(request->remote);
        to[at++] = be32(request->rkey);
    }
    if (opcode == ATOMIC_CS || opcode == ATOMIC_FA) {
        to[at++] = be64(request->swap_or_add);
        to[at++] = be64(request->compare);
    }
    to[at++] = be32(request->length) | (u64)be32(request->lkey) << 32;
    to[at++] = be64(request->local);
    u64 head = be32(number << 8 | opcode) | (u64)be32(post->number << 8 | at / 2) << 32;
    to[1] = (u64)(request->signaled ? SIGNALED : 0) << 24 | (u64)be32(request->immediate) << 32;
    to[0] = head;
    return head;
}

/* Waits for an entry of the completion queue. Returns 0 if none arrived. */
FUNCTION u32 wait_for_entry(volatile struct post *post, u32 index, volatile struct entry *found) {
    u32 number = post->next_entry + index, count = post->entry_count, size = post->entry_size;
    /* The entry is at the end of its slot, and its last byte is written last. */
    volatile u8 *end = AT(u8, post->entries + (u64)(number % count + 1) * size - 64);
    u32 turn = number / count & 1;
    for (u64 spins = post->spins; spins; spins--) {
        u32 last = end[63];
        if ((last & 1) != turn || last >> 4 == INVALID_ENTRY) {
            pause_spin();
            continue;
        }
        fence();
        found->kind = last >> 4;
        found->block = (u32)end[60] << 8 | end[61];
        found->syndrome = end[55];
        return 1;
    }
    return 0;
}

/* Writes requests, rings the doorbell once, and waits for the completions. */
KERNEL(post) {
    if (first() != 0) return;
    volatile struct post *post = AT(struct post, argument);
    volatile struct request *requests = AT(struct request, post->requests);
    volatile struct entry *found = AT(struct entry, post->found);
    u32 count = post->request_count, expected = post->expected;
    u64 head = 0;
    for (u32 index = 0; index < count; index++) head = write_request(post, index, &requests[index]);
    fence();
    *AT(u32, post->record) = be32((post->next_block + count) & 0xffff);
    fence();
    *AT(u64, post->doorbell) = head;
    fence();
    u32 completed = 0;
    while (completed < expected && wait_for_entry(post, completed, &found[completed])) completed++;
    post->completed = completed;
    fence();
}
