//! Memory of a GPU (`--gpu`): data between two processes on the model of an mlx5 adapter, with the
//! model of libcuda (`cuda-model`), whose memory is a dma-buf of the kernel; and the errors of
//! everything that cannot use such memory.

use std::fs;
use std::path::Path;
use std::process::Command;

use measure::engine::payload;
use test_support::lab::{self, built_library, report_device};
use test_support::process::{self, Finished};
use test_support::temp_dir::TempDir;
use test_support::udmabuf;

use crate::common::{Server, devices, records, rperf};

/// Description of the GPU in reports.
const GPU: &str = "GPU cuda:0 (NVIDIA Model)";
/// Size of the messages in bytes.
const SIZE: usize = 1000;
/// Bytes before the payload of a datagram: the global routing header.
const HEADER: usize = 40;

/// The model of libcuda, and the memory that its processes have freed.
struct Cuda {
    directory: TempDir,
}

impl Cuda {
    fn new() -> Self {
        assert!(udmabuf::is_available(), "no {}", udmabuf::DEVICE);
        let directory = TempDir::in_memory();
        let library = directory.path().join("libcuda.so.1");
        std::os::unix::fs::symlink(built_library("cuda_model"), library).expect("a link");
        Self { directory }
    }

    /// Returns the directory for the memory of one end.
    fn content(&self, end: &str) -> impl AsRef<Path> {
        let directory = self.directory.path().join(end);
        fs::create_dir_all(&directory).expect("a directory");
        directory
    }

    /// Returns a command of `rperf` at one end, which finds the library.
    fn rperf(&self, end: &str) -> Command {
        let mut command = rperf();
        command
            .env("LD_LIBRARY_PATH", self.directory.path())
            .env("CUDA_MODEL_CONTENT", self.content(end).as_ref());
        command
    }

    /// Runs tests between two processes on the model of an adapter.
    fn run_on_model(&self, line: &str) -> Finished {
        let mut server = self.rperf("server");
        lab::use_model(&mut server);
        let server = Server::spawn(server.args(["-lp", "0"]));
        let mut client = self.rperf("client");
        lab::use_model(&mut client);
        let line = format!("{} -i mlx5_0 -n 40 {line}", server.target());
        let output = process::output(client.args(line.split_whitespace()));
        assert!(output.success(), "{line}: {output}");
        // The server frees the memory of a test after the client has its results.
        server.signal("TERM");
        server.wait();
        output
    }

    /// Returns the contents of the memory that one end has freed.
    fn freed(&self, end: &str) -> Vec<Vec<u8>> {
        let files = fs::read_dir(self.content(end)).expect("a directory");
        files
            .map(|file| fs::read(file.expect("a file").path()).expect("content"))
            .collect()
    }

    /// Returns the number of buffers of one end that have a message.
    fn messages(&self, end: &str) -> usize {
        let mut message = [0; SIZE];
        payload::fill(&mut message, 0);
        let has_message = |bytes: &&Vec<u8>| {
            let mut starts = [0, HEADER].into_iter();
            starts.any(|start| bytes[start..start + SIZE] == message)
        };
        self.freed(end).iter().filter(has_message).count()
    }
}

/// Each end has one buffer with the message to send. Each buffer that a message arrived in has it,
/// too.
#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn messages_move_between_the_memory_of_gpus() {
    // The buffers with the message at the client and at the server.
    let tests = [
        ("rc_bw", 1, 2),
        ("rc_bi_bw", 2, 2),
        ("rc_lat", 2, 2),
        ("uc_bw", 1, 2),
        ("ud_bw", 1, 2),
        ("xrc_bw", 1, 2),
        ("rc_rdma_write_bw", 1, 2),
        ("rc_rdma_write_lat", 2, 2),
        ("rc_rdma_read_bw", 2, 1),
    ];
    let cuda = Cuda::new();
    let names: Vec<&str> = tests.iter().map(|test| test.0).collect();
    let line = format!("--json --gpu cuda:0 -m {SIZE} {}", names.join(" "));
    let records = records(&cuda.run_on_model(&line).stdout);
    assert_eq!(records.len(), tests.len());
    for record in &records {
        for end in ["local", "remote"] {
            let memory = &record["outcome"]["measured"][end]["memory"];
            assert_eq!(memory, GPU, "{record}");
        }
    }
    let client: usize = tests.iter().map(|test| test.1).sum();
    let server: usize = tests.iter().map(|test| test.2).sum();
    let messages = ["client", "server"].map(|end| cuda.messages(end));
    assert_eq!(messages, [client, server]);
    report_device("mlx5_0");
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn each_end_chooses_its_memory() {
    for (option, messages) in [("--local-gpu", [1, 0]), ("--remote-gpu", [0, 2])] {
        let cuda = Cuda::new();
        let line = format!("{option} cuda:0 -m {SIZE} --threads 1 rc_bw");
        let output = cuda.run_on_model(&line);
        let text = &output.stdout;
        assert_eq!(text.matches(GPU).count(), 1, "{option}: {text}");
        let line = if option == "--local-gpu" {
            "via"
        } else {
            "peer"
        };
        let line = text.lines().find(|l| l.trim_start().starts_with(line));
        assert!(line.is_some_and(|line| line.contains(GPU)), "{text}");
        let found = ["client", "server"].map(|end| cuda.messages(end));
        assert_eq!(found, messages, "{option}");
    }
    report_device("mlx5_0");
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn atomics_and_several_queue_pairs_use_memory_of_gpus() {
    let cuda = Cuda::new();
    cuda.run_on_model("--gpu cuda:0 rc_fetch_add_mr");
    let count = 40_u64.to_ne_bytes();
    let freed = cuda.freed("server");
    assert!(
        freed.iter().any(|bytes| bytes[..8] == count),
        "40 additions"
    );

    let cuda = Cuda::new();
    cuda.run_on_model(&format!(
        "--gpu cuda:0 -m {SIZE} --threads 2 --qps 2 --srq rc_bw"
    ));
    assert_eq!(["client", "server"].map(|end| cuda.messages(end)), [2, 4]);
    report_device("mlx5_0");
}

/// Runs a test between both ends in one process. It must fail; returns the error.
fn fails(command: &mut Command, line: &str) -> String {
    let output = process::output(command.args(line.split_whitespace()));
    assert_eq!(output.code(), Some(1), "{line}: {output}");
    output.stderr
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn devices_without_dma_buf_are_named() {
    let cuda = Cuda::new();
    for device in devices() {
        let expected = format!("{device} cannot register memory of a GPU");
        for (option, is_remote) in [("--local-gpu", false), ("--remote-gpu", true)] {
            let line = format!("-i {device} {option} cuda:0 rc_bw");
            let text = fails(&mut cuda.rperf("client"), &line);
            let is_clear = text.contains(&expected) && text.contains("mlx5");
            assert!(is_clear, "{text}");
            assert_eq!(text.contains("the server: "), is_remote, "{text}");
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn missing_drivers_and_gpus_have_a_remedy() {
    let cuda = Cuda::new();
    // The RDMA device makes no difference.
    let device = &lab::device_names()[0];
    for (variable, gpu, expected) in [
        (
            ("LD_LIBRARY_PATH", ""),
            0,
            ["libcuda.so.1", "install the driver"],
        ),
        (
            ("CUDA_MODEL_GPUS", "0"),
            0,
            ["CUDA_ERROR_NO_DEVICE", "nvidia-smi"],
        ),
        (
            ("CUDA_MODEL_GPUS", "2"),
            2,
            ["no GPU cuda:2; available: cuda:0 to cuda:1", "nvidia-smi"],
        ),
        (
            ("CUDA_MODEL_NO_DMABUF", "1"),
            0,
            ["cannot export its memory as a dma-buf", "nvidia-open"],
        ),
    ] {
        let mut command = cuda.rperf("client");
        command.env(variable.0, variable.1);
        let line = format!("-i {device} --local-gpu cuda:{gpu} rc_bw");
        let text = fails(&mut command, &line);
        for part in expected {
            assert!(text.contains(part), "{variable:?}: {text}");
        }
    }
    report_device(device);
}
