//! The first calls of librdmacm in a process, by several threads at once.

use std::env;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;
use std::sync::Barrier;
use std::thread;

use nic_model::{Link, Options};
use rdmacm::Listener;
use test_support::process;

/// Set in the processes that the test starts.
const CHILD: &str = "NIC_MODEL_TEST_FIRST_CALLS";
const PROCESSES: usize = 100;
const THREADS: usize = 16;

/// A thread that finds librdmacm half initialized binds with a command of old kernels, which the
/// model lacks.
#[test]
fn threads_find_librdmacm_initialized() {
    if env::var_os(CHILD).is_some() {
        return bind_on_threads();
    }
    for _ in 0..PROCESSES {
        let mut command = Command::new(env::current_exe().expect("this program"));
        command.args(["--exact", "threads_find_librdmacm_initialized"]);
        let output = process::output(command.env(CHILD, "1"));
        assert!(output.success(), "{output}");
    }
}

fn bind_on_threads() {
    nic_model::start(Options::new().link(Link::Ethernet)).expect("start of the model");
    let barrier = Barrier::new(THREADS);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                barrier.wait();
                let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
                Listener::bind(address, 1).expect("a listener");
            });
        }
    });
}
