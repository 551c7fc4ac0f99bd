//! `--payload-file`: the bytes of a file in all messages.

use std::io::Read;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};
use test_support::temp_dir::TempDir;

use super::sum_of_both_ends;
use crate::common::{Server, connects_directly, devices, fails, json};

/// A file of 509 bytes without a repetition of 3 bytes. No power of two is a multiple of its
/// length.
fn pattern_file(dir: &TempDir) -> (String, Vec<u8>) {
    let bytes: Vec<u8> = (0..509_u32)
        .map(|n| (n * n / 7 + n).to_le_bytes()[0])
        .collect();
    let path = dir.path().join("pattern");
    std::fs::write(&path, &bytes).unwrap();
    (path.display().to_string(), bytes)
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn both_ends_send_the_bytes_of_the_payload_file() {
    let dir = TempDir::new();
    let (file, _) = pattern_file(&dir);
    for device in devices() {
        let server = Server::start();
        let line = |tests: &str| {
            let target = server.target();
            format!("{target} -i {device} --payload-file {file} --verify -n 40 {tests}")
        };
        let mut tests = "-m 3000 rc_bw rc_bi_bw rc_lat rc_rdma_read_bw rc_rdma_read_lat rc_rdma_write_bw rc_rdma_write_poll_lat".to_owned();
        if connects_directly(&device) {
            tests += " uc_bw uc_rdma_write_bw -m 1000 ud_bw ud_lat";
        }
        for tests in [
            &*tests,
            "--flip on -m 3000 rc_bw rc_rdma_read_bw",
            "-m 7 rc_bw",
        ] {
            for record in json(&line(tests)) {
                let verified = sum_of_both_ends(&record, "/verified");
                let size = record["outcome"]["measured"]["spec"]["msg_size"].as_u64();
                assert!(verified >= 40 * size.unwrap(), "{record:#}");
            }
        }
        let text = fails(&line("rc_fetch_add_mr"), 2);
        assert!(text.contains("other than those of atomics"), "{text}");
    }
}

/// Returns the packets on all network interfaces during a call.
fn captured<T>(run: impl FnOnce() -> T) -> Vec<Vec<u8>> {
    // ETH_P_ALL in network byte order.
    let all = Protocol::from(i32::from(3_u16.to_be()));
    let mut socket = Socket::new(Domain::PACKET, Type::RAW, Some(all)).unwrap();
    socket.set_recv_buffer_size(64 << 20).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_millis(100)))
        .unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let (mut packets, mut buffer) = (Vec::new(), vec![0; 1 << 17]);
            loop {
                let was_over = is_over.load(Ordering::Relaxed);
                match socket.read(&mut buffer) {
                    Ok(len) => packets.push(buffer[..len].to_vec()),
                    Err(_) if was_over => return packets,
                    Err(_) => {}
                }
            }
        });
        // A panic of the call is passed on after the reader has ended.
        let result = catch_unwind(AssertUnwindSafe(run));
        is_over.store(true, Ordering::Relaxed);
        let packets = reader.join().unwrap();
        result.map_or_else(|panic| resume_unwind(panic), |_| packets)
    })
}

/// The packets of Soft-RoCE between two ends on one host do not reach a network interface. Those of
/// Soft-iWARP are segments of TCP.
#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn packets_of_iwarp_contain_the_payload_file() {
    let dir = TempDir::new();
    let (file, bytes) = pattern_file(&dir);
    for device in devices().iter().filter(|device| !connects_directly(device)) {
        let server = Server::start();
        for options in [
            "rc_bw",
            "--flip on rc_bw",
            "--access-received on rc_bw",
            "rc_lat",
            "rc_rdma_read_bw",
            "rc_rdma_write_bw",
            "rc_rdma_write_poll_lat",
        ] {
            let target = server.target();
            let line =
                format!("{target} -i {device} --payload-file {file} -n 20 -m 1000 {options}");
            let packets = captured(|| json(&line));
            // The data of a packet may begin in the middle of a message.
            let part = &bytes[60..190];
            let found = packets.iter().map(|packet| {
                packet
                    .windows(part.len())
                    .filter(|bytes| *bytes == part)
                    .count()
            });
            let found: usize = found.sum();
            assert!(found >= 20, "{line}: {found} of {} packets", packets.len());
        }
    }
}
