//! Measures the registration of memory with the safe library and with `ibv_reg_mr` alone: the same
//! memory, from 4 KiB to 1 GiB, in pages of 4 KiB and 2 MiB.
//!
//! ```text
//! registration DEVICE…
//! registration model rxe0 siw0
//! ```
//!
//! `model` is the model of an mlx5 adapter, in the process itself. Pages of 2 MiB must have been
//! reserved (`/proc/sys/vm/nr_hugepages`), otherwise their rows are omitted.

#![allow(unsafe_code, reason = "calls the raw verbs")]

use std::error::Error;
use std::hint::black_box;
use std::process::ExitCode;
use std::ptr::{self, NonNull};
use std::time::Instant;

use benches::Spread;
use ibverbs::mr::{Backing, CallerMemory};
use ibverbs::{AccessFlags, AsRaw, MemoryOptions, ProtectionDomain};
use rdma_sys::{IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_WRITE, ibv_dereg_mr, ibv_reg_mr};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const LENGTHS: [usize; 6] = [4 << 10, 64 << 10, 1 << 20, 16 << 20, 256 << 20, 1 << 30];
const ROUNDS: usize = 11;
/// Bytes registered in a round, one region after the other.
const BYTES: usize = 64 << 20;
const MAX_REPETITIONS: usize = 200;

/// Microseconds to register and to deregister.
type Costs = [f64; 2];

fn main() -> ExitCode {
    let devices: Vec<String> = std::env::args().skip(1).collect();
    let result = if devices.is_empty() {
        Err("expected arguments: DEVICE…".into())
    } else {
        table(&devices)
    };
    benches::exit_code("registration", result)
}

/// Prints a row for each device, page size and length.
fn table(devices: &[String]) -> Result<()> {
    println!(
        "| device | pages | length | register, µs, safe | C | safe / C | deregister, µs, safe | C | safe / C |"
    );
    println!("|---|---|---:|---:|---:|---:|---:|---:|---:|");
    for device in devices {
        let pd = benches::open(device)?.alloc_pd()?;
        for (pages, flags) in [("4 KiB", 0), ("2 MiB", libc::MAP_HUGETLB)] {
            for len in LENGTHS {
                let Ok(memory) = Mapping::new(len.max(2 << 20), flags) else {
                    eprintln!("{device}: no memory of {len} bytes in pages of {pages}");
                    break;
                };
                row(device, pages, &pd, &memory, len)?;
            }
        }
    }
    Ok(())
}

fn row(
    device: &str,
    pages: &str,
    pd: &ProtectionDomain,
    memory: &Mapping,
    len: usize,
) -> Result<()> {
    let repetitions = (BYTES / len).clamp(1, MAX_REPETITIONS);
    let mut rounds: Vec<[Costs; 2]> = Vec::new();
    for round in 0..ROUNDS {
        let mut costs = [Costs::default(); 2];
        for at in [round % 2, 1 - round % 2] {
            for _ in 0..repetitions {
                let [register, deregister] = match at {
                    0 => safe(pd, memory, len)?,
                    _ => raw(pd, memory, len)?,
                };
                costs[at][0] += register;
                costs[at][1] += deregister;
            }
        }
        rounds.push(costs);
    }
    #[allow(clippy::cast_precision_loss, reason = "a small number")]
    let repetitions = repetitions as f64;
    let spread = |value: &dyn Fn(&[Costs; 2]) -> f64| Spread::new(rounds.iter().map(value));
    print!("| {device} | {pages} | {} |", length(len));
    for step in [0, 1] {
        let [safe, c] = [0, 1].map(|at| spread(&|costs| costs[at][step] / repetitions).median);
        let ratio = spread(&|costs| costs[0][step] / costs[1][step]);
        print!(
            " {safe:.1} | {c:.1} | {:.2} ({:.2}..{:.2}) |",
            safe / c,
            ratio.least,
            ratio.most
        );
    }
    println!();
    Ok(())
}

/// Registers and deregisters with the safe library.
fn safe(pd: &ProtectionDomain, memory: &Mapping, len: usize) -> Result<Costs> {
    // SAFETY: the memory is mapped until `memory` is dropped, which is after the region. Nothing
    // else uses it.
    let caller = unsafe { CallerMemory::new(memory.start, len, ()) };
    let options = MemoryOptions::new().backing(Backing::Caller(caller));
    let began = Instant::now();
    let region = pd.shared_with(len, AccessFlags::REMOTE_WRITE, options)?;
    let register = micros(began);
    let began = Instant::now();
    drop(black_box(region));
    Ok([register, micros(began)])
}

/// Registers and deregisters with the functions of libibverbs.
fn raw(pd: &ProtectionDomain, memory: &Mapping, len: usize) -> Result<Costs> {
    let access = (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE).cast_signed();
    let began = Instant::now();
    // SAFETY: the domain is alive, and the memory is mapped until `memory` is dropped.
    let mr = unsafe { ibv_reg_mr(pd.as_raw(), memory.start.as_ptr().cast(), len, access) };
    let register = micros(began);
    if mr.is_null() {
        return Err(std::io::Error::last_os_error().into());
    }
    let began = Instant::now();
    // SAFETY: the region was just registered, and is not used again.
    let returned = unsafe { ibv_dereg_mr(black_box(mr)) };
    let deregister = micros(began);
    match returned {
        0 => Ok([register, deregister]),
        errno => Err(std::io::Error::from_raw_os_error(errno).into()),
    }
}

fn micros(began: Instant) -> f64 {
    began.elapsed().as_secs_f64() * 1e6
}

fn length(bytes: usize) -> String {
    match bytes {
        bytes if bytes >= 1 << 30 => format!("{} GiB", bytes >> 30),
        bytes if bytes >= 1 << 20 => format!("{} MiB", bytes >> 20),
        bytes => format!("{} KiB", bytes >> 10),
    }
}

/// Memory of the kernel, all of it resident.
struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

impl Mapping {
    fn new(len: usize, flags: i32) -> std::io::Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | flags;
        // SAFETY: a new mapping at an address that the kernel selects.
        let start = unsafe { libc::mmap(ptr::null_mut(), len, protection, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error());
        }
        // Otherwise the kernel could use pages of 2 MiB for a mapping of 4 KiB pages. It fails for
        // mappings of huge pages, and in kernels without transparent ones.
        // SAFETY: the range is the mapping.
        unsafe { libc::madvise(start, len, libc::MADV_NOHUGEPAGE) };
        // SAFETY: the mapping is writable and `len` bytes long.
        unsafe { start.cast::<u8>().write_bytes(1, len) };
        let start = NonNull::new(start.cast()).ok_or(std::io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, len })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `self` owns the mapping, and its regions were deregistered.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}
