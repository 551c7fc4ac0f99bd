//! The crate on `cuda-model`, whose memory starts unzeroed and whose writes arrive late. It aborts
//! the process if objects are destroyed in the wrong order.
#![allow(unsafe_code, reason = "asks the model about its state")]

use std::ffi::{c_int, c_uint, c_ulonglong, c_void};
use std::fs::{self, File};
use std::io::Seek;
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, thread};

use gpu_memory::{Gpu, GpuBuffer};
use libloading::Library;
use test_support::process;
use test_support::temp_dir::TempDir;

const LIBRARY: &str = "libcuda.so.1";
const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// Set in the processes that run a test on the model: the directory with the library.
const DIRECTORY: &str = "GPU_MEMORY_TEST_DIRECTORY";

/// Runs the test `name` in a process with these variables, in which libcuda is the model. Returns
/// `true` in that process.
fn on_model(name: &str, variables: &[(&str, &str)]) -> bool {
    if env::var_os(DIRECTORY).is_some() {
        return true;
    }
    let directory = TempDir::new();
    symlink(model(), directory.path().join(LIBRARY)).expect("a link");
    let mut command = Command::new(env::current_exe().expect("this program"));
    command
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(DIRECTORY, directory.path())
        .env("LD_LIBRARY_PATH", directory.path())
        .env("CUDA_MODEL_FILES", "1")
        .env("CUDA_MODEL_CONTENT", directory.path())
        .envs(variables.iter().copied());
    let text = process::run(&mut command);
    assert!(text.contains("1 passed"), "{text}");
    false
}

fn directory() -> PathBuf {
    env::var_os(DIRECTORY).expect("a directory").into()
}

/// Returns the library of the model, which was built with this program.
fn model() -> PathBuf {
    let program = env::current_exe().expect("this program");
    program.with_file_name("libcuda_model.so")
}

fn gpu() -> Gpu {
    Gpu::cuda(0).expect("the model")
}

/// Returns the content of a buffer that another device sees.
fn exported(buffer: &GpuBuffer) -> Vec<u8> {
    let descriptor = buffer.dmabuf().try_clone_to_owned().expect("a descriptor");
    let mut file = File::from(descriptor);
    let start = file.stream_position().expect("a position");
    let mut bytes = vec![0; usize::try_from(buffer.len()).expect("64 bits")];
    file.read_exact_at(&mut bytes, start).expect("memory");
    bytes
}

fn read(buffer: &GpuBuffer, offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![1; len];
    buffer.read(offset, &mut bytes).expect("inside");
    bytes
}

/// Returns `true` if the context of a GPU is retained. The model aborts if it is released before
/// its memory is freed.
fn is_retained(gpu: c_int) -> bool {
    type GetState = unsafe extern "C" fn(c_int, *mut c_uint, *mut c_int) -> c_int;
    let (mut flags, mut is_active) = (0, 0);
    // SAFETY: `cuda.h` declares the function with this type.
    unsafe {
        let library = Library::new(LIBRARY).expect("the model");
        let get_state = library
            .get::<GetState>(b"cuDevicePrimaryCtxGetState")
            .expect("a function");
        assert_eq!(get_state(gpu, &raw mut flags, &raw mut is_active), 0);
    }
    is_active != 0
}

/// Reads memory at an address of the GPU, in its context.
fn read_at(address: u64, len: usize) -> Vec<u8> {
    type Copy = unsafe extern "C" fn(*mut c_void, c_ulonglong, usize) -> c_int;
    let mut bytes = vec![1; len];
    // SAFETY: `cuda.h` declares the function with this type. It writes the bytes.
    unsafe {
        let library = Library::new(LIBRARY).expect("the model");
        let copy = library.get::<Copy>(b"cuMemcpyDtoH_v2").expect("a function");
        assert_eq!(copy(bytes.as_mut_ptr().cast(), address, len), 0);
    }
    bytes
}

#[test]
fn new_memory_is_zero_and_writes_arrive_at_once() {
    if !on_model("new_memory_is_zero_and_writes_arrive_at_once", &[]) {
        return;
    }
    let gpu = gpu();
    assert_eq!(gpu.name(), "NVIDIA Model");
    for (len, expected) in [
        (0, 64 * KIB),
        (1, 64 * KIB),
        (64 * KIB, 64 * KIB),
        (64 * KIB + 1, 128 * KIB),
        (MIB, MIB),
        (MIB + 1, MIB + 64 * KIB),
    ] {
        let mut buffer = gpu.alloc(len).expect("memory");
        assert_eq!(buffer.len(), expected as u64);
        assert_eq!(buffer.address() % (64 << 10), 0);
        assert_eq!(exported(&buffer), vec![0; expected], "not zeroed at once");
        assert_eq!(read(&buffer, 0, expected), vec![0; expected]);

        let mut content: Vec<u8> = (0..=250).cycle().take(expected).collect();
        buffer.write(0, &content).expect("inside");
        assert!(exported(&buffer) == content, "not written at once");
        buffer.write(3, b"part").expect("inside");
        content[3..7].copy_from_slice(b"part");
        assert!(exported(&buffer) == content, "not written at once");
        assert!(read(&buffer, 0, expected) == content);
        assert_eq!(read(&buffer, 4, 3), b"art");
        assert!(read_at(buffer.address(), expected) == content);

        // The model writes the exported part to a file when it is freed.
        drop(buffer);
        let is_freed = |path: &Path| fs::read(path).expect("a file") == content;
        let files = fs::read_dir(directory()).expect("the directory");
        let mut files = files.map(|file| file.expect("a file").path());
        assert!(files.any(|path| !path.is_symlink() && is_freed(&path)));
    }
}

#[test]
fn access_beyond_the_buffer_is_an_error() {
    if !on_model("access_beyond_the_buffer_is_an_error", &[]) {
        return;
    }
    for len in [1, 2 * MIB] {
        let mut buffer = gpu().alloc(len).expect("memory");
        let len = buffer.len();
        for (offset, count) in [(len, 1), (len - 1, 2), (len + 1, 0), (u64::MAX, 2)] {
            let end = format!(" of {count} bytes at {offset}: the buffer has {len} bytes");
            let mut bytes = vec![7; count];
            let error = buffer.write(offset, &bytes).expect_err("beyond");
            assert_eq!(error.to_string(), format!("write{end}"));
            let error = buffer.read(offset, &mut bytes).expect_err("beyond");
            assert_eq!(error.to_string(), format!("read{end}"));
            assert!(bytes.iter().all(|byte| *byte == 7));
        }
        assert!(exported(&buffer).iter().all(|byte| *byte == 0));
        buffer.write(len, &[]).expect("the end");
        buffer.write(len - 1, &[1]).expect("the last byte");
        assert_eq!(read(&buffer, len - 1, 1), [1]);
    }
}

#[test]
fn a_buffer_outlives_its_gpu_and_moves_between_threads() {
    if !on_model("a_buffer_outlives_its_gpu_and_moves_between_threads", &[]) {
        return;
    }
    let gpu = gpu();
    let mut buffer = gpu.clone().alloc(1).expect("memory");
    drop(gpu);
    let buffer = thread::spawn(move || {
        buffer.write(5, b"thread").expect("inside");
        buffer
    });
    let buffer = buffer.join().expect("no panic");
    thread::scope(|scope| {
        let content = scope.spawn(|| read(&buffer, 5, 6)).join();
        assert_eq!(content.expect("no panic"), b"thread");
    });
    assert!(is_retained(0));
    thread::spawn(move || drop(buffer)).join().expect("freed");
    assert!(!is_retained(0));
}

#[test]
fn gpus_have_memory_of_their_own() {
    let variables = [("CUDA_MODEL_GPUS", "2")];
    if !on_model("gpus_have_memory_of_their_own", &variables) {
        return;
    }
    let gpus = [gpu(), Gpu::cuda(1).expect("a second GPU")];
    let mut buffers = gpus.each_ref().map(|gpu| gpu.alloc(1).expect("memory"));
    for (content, buffer) in [b"first", b"other"].into_iter().zip(&mut buffers) {
        buffer.write(0, content).expect("inside");
    }
    assert_eq!(exported(&buffers[0])[..5], *b"first");
    assert_eq!(exported(&buffers[1])[..5], *b"other");
    drop(gpus);
    assert!(is_retained(0) && is_retained(1));
    let [first, other] = buffers;
    drop(other);
    assert!(is_retained(0) && !is_retained(1));
    assert_eq!(read(&first, 0, 5), b"first");
    drop(first);
    assert!(!is_retained(0));

    let error = Gpu::cuda(2).expect_err("two GPUs");
    assert_eq!(
        error.to_string(),
        "no GPU cuda:2; available: cuda:0 to cuda:1"
    );
    assert!(error.help().expect("a remedy").contains("nvidia-smi"));
}

#[test]
fn memory_is_only_padded_where_it_must_be() {
    // In the model, a small allocation begins within a page.
    for (len, memory) in [("1", "135168"), ("4194304", "4194304")] {
        let variables = [("LEN", len), ("CUDA_MODEL_MEMORY", memory)];
        if !on_model("memory_is_only_padded_where_it_must_be", &variables) {
            continue;
        }
        let len = env::var("LEN").expect("set").parse().expect("a number");
        let buffer = gpu().alloc(len).expect("memory for one buffer");
        let error = gpu().alloc(len).expect_err("no more memory");
        assert!(error.to_string().starts_with("cuMemAlloc of "), "{error}");
        let expected = " bytes: CUDA_ERROR_OUT_OF_MEMORY (error of the model)";
        assert!(error.to_string().ends_with(expected), "{error}");
        assert!(error.help().expect("a remedy").contains("smaller buffers"));
        drop(buffer);
        gpu().alloc(len).expect("memory is free again");
        return assert!(!is_retained(0));
    }
}

#[test]
fn too_many_bytes_are_an_error() {
    if !on_model("too_many_bytes_are_an_error", &[]) {
        return;
    }
    for (len, expected) in [
        (
            usize::MAX,
            "18446744073709551615 bytes of memory: too large",
        ),
        (
            usize::MAX - 64 * KIB + 1,
            "cuMemAlloc of 18446744073709486080 bytes: CUDA_ERROR_OUT_OF_MEMORY (error of the model)",
        ),
    ] {
        let error = gpu().alloc(len).expect_err("too large");
        assert_eq!(error.to_string(), expected);
    }
}

#[test]
fn a_gpu_that_cannot_be_used_is_an_error_with_a_remedy() {
    for (variables, expected, remedy) in [
        (
            [("CUDA_MODEL_GPUS", "0")],
            "cuInit: CUDA_ERROR_NO_DEVICE (error of the model)",
            "nvidia-smi",
        ),
        (
            [("CUDA_MODEL_GPUS", "1")],
            "no GPU cuda:1; available: cuda:0",
            "nvidia-smi",
        ),
        (
            [("CUDA_MODEL_NO_DMABUF", "1")],
            "GPU cuda:0 (NVIDIA Model) cannot export its memory as a dma-buf",
            "nvidia-open",
        ),
        (
            [("CUDA_MODEL_NO_DMABUF", "unknown")],
            "GPU cuda:0 (NVIDIA Model) cannot export its memory as a dma-buf",
            "nvidia-open",
        ),
        (
            [("CUDA_MODEL_NO_DMABUF", "silent")],
            "cuMemGetHandleForAddressRange: returned no file descriptor",
            "nvidia-open",
        ),
    ] {
        let [(name, value)] = variables;
        if !on_model(
            "a_gpu_that_cannot_be_used_is_an_error_with_a_remedy",
            &variables,
        ) {
            continue;
        }
        if env::var(name).is_ok_and(|set| set == value) {
            let number = u32::from(variables == [("CUDA_MODEL_GPUS", "1")]);
            let error = Gpu::cuda(number)
                .and_then(|gpu| gpu.alloc(1))
                .expect_err(value);
            assert_eq!(error.to_string(), expected);
            let help = error.help().expect("a remedy");
            assert!(help.contains(remedy), "{help}");
            assert!(!is_retained(0));
        }
    }
}

#[test]
fn failed_calls_are_named_and_leave_nothing_behind() {
    for call in [
        "cuDeviceGetCount",
        "cuDeviceGet",
        "cuDeviceGetName",
        "cuDevicePrimaryCtxRetain",
        "cuCtxSetCurrent",
        "cuMemAlloc",
        "cuMemsetD8",
        "cuCtxSynchronize",
        "cuMemGetHandleForAddressRange",
        "cuMemcpyHtoD",
        "cuMemcpyDtoH",
    ] {
        let variables = [("CUDA_MODEL_FAIL", call)];
        if !on_model(
            "failed_calls_are_named_and_leave_nothing_behind",
            &variables,
        ) {
            continue;
        }
        let call = env::var("CUDA_MODEL_FAIL").expect("set");
        let use_gpu = || {
            let mut buffer = Gpu::cuda(0)?.alloc(1)?;
            buffer.write(0, b"byte")?;
            buffer.read(0, &mut [0; 4])
        };
        let error = use_gpu().expect_err(&call);
        let size = match call.as_str() {
            "cuMemAlloc" => " of 65536 bytes",
            _ => "",
        };
        assert_eq!(
            error.to_string(),
            format!("{call}{size}: error 999 (error of the model)")
        );
        return assert!(!is_retained(0));
    }
}

#[test]
fn a_driver_that_is_installed_later_is_found() {
    if !on_model("a_driver_that_is_installed_later_is_found", &[]) {
        return;
    }
    // The dynamic linker takes the first file of this name.
    let path = directory().join(LIBRARY);
    fs::remove_file(&path).expect("the link");
    fs::write(&path, "").expect("a file");
    let error = Gpu::cuda(0).expect_err("not a library");
    let text = error.to_string();
    assert!(text.starts_with("memory of a GPU: "), "{text}");
    assert!(text.contains(LIBRARY), "{text}");
    let help = error.help().expect("a remedy");
    assert!(help.starts_with("install the driver"), "{help}");

    fs::remove_file(&path).expect("the file");
    symlink(model(), &path).expect("a link");
    gpu();
}

#[test]
fn a_driver_without_the_functions_is_an_error() {
    if !on_model("a_driver_without_the_functions_is_an_error", &[]) {
        return;
    }
    let path = directory().join(LIBRARY);
    fs::remove_file(&path).expect("the link");
    symlink(loaded("libc.so.6"), &path).expect("a link");
    let error = Gpu::cuda(0).expect_err("not the driver");
    assert_eq!(error.to_string(), "libcuda.so.1 has no function cuInit");
    let help = error.help().expect("a remedy");
    assert!(help.contains("CUDA 11.7 or newer"), "{help}");
}

/// Returns the path of a library of this process.
fn loaded(name: &str) -> PathBuf {
    let maps = fs::read_to_string("/proc/self/maps").expect("the mappings");
    let paths = maps.lines().filter_map(|line| line.split(' ').next_back());
    let mut libraries = paths.filter(|path| path.ends_with(name));
    libraries.next().expect("a loaded library").into()
}

#[test]
fn objects_show_their_names_and_lengths() {
    if !on_model("objects_show_their_names_and_lengths", &[]) {
        return;
    }
    let gpu = gpu();
    assert_eq!(format!("{gpu:?}"), r#"Gpu { name: "NVIDIA Model" }"#);
    let buffer = gpu.alloc(1).expect("memory");
    assert_eq!(format!("{buffer:?}"), "GpuBuffer { len: 65536 }");
}
