//! Runs tests on a GPU, or on the model of libcuda.

use std::os::unix::fs::symlink;
use std::path::Path;

use test_support::lab::{self, built_library, report_device};
use test_support::process;
use test_support::temp_dir::TempDir;

use crate::cuda::Cuda;

/// Set where the test can run: libcuda is that of a GPU or its model, and the model of an adapter
/// is loaded.
const READY: &str = "GPU_TESTS_READY";

/// Runs the test `name`. In a process that `ci/gpu` has started, it runs at once. Otherwise it runs
/// on the models of libcuda and of an adapter, first with memory that the adapter maps and then
/// with memory that it copies, as that of a GPU.
///
/// # Panics
/// Panics if the test fails.
pub fn on_gpu(name: &str, test: impl FnOnce(&Cuda)) {
    if std::env::var_os(READY).is_some() {
        test(&Cuda::open());
        return report_device("mlx5_0");
    }
    let model = built_library("cuda_model");
    for links in [
        &[("libcuda.so.1", model.as_path())][..],
        &[
            ("libcuda.so.1", Path::new(env!("CUDA_BRIDGE"))),
            ("libcuda_driver.so", &model),
        ],
    ] {
        let directory = TempDir::in_memory();
        for (link, library) in links {
            symlink(library, directory.path().join(link)).expect("a link");
        }
        let mut command = process::ignored_test(name);
        lab::use_model(&mut command);
        command
            .env(READY, "1")
            .env("LD_LIBRARY_PATH", directory.path());
        let output = process::output(&mut command);
        assert!(output.success(), "{links:?}: {output}");
        let facts = output
            .stdout
            .lines()
            .filter_map(|line| line.find("fact: ").map(|at| &line[at..]));
        facts.for_each(|fact| println!("{fact}"));
    }
    report_device("mlx5_0");
}
