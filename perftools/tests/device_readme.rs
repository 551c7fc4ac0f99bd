//! What the README says to type for `rperf` does on the lab's devices what it says there.

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use common::{Server, address, connects_directly, devices, readme, rperf};

/// A shell in `directory` that finds `rperf`.
fn shell(line: &str, directory: &Path) -> Output {
    let programs = Path::new(env!("CARGO_BIN_EXE_rperf")).parent().unwrap();
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    Command::new("sh")
        .args(["-c", line])
        .current_dir(directory)
        .env("PATH", path)
        .output()
        .unwrap()
}

/// What makes a command short where it has no count, or a long time: no word of it is left out.
fn shortened(line: &str) -> String {
    let line = line
        .replace("-t 600", "-t 3")
        .replace(">new.json", "| tee new.json >old.json");
    let more = match &line {
        line if line.contains("--auto") => "rperf -t 20ms --tries 5 ",
        line if line.contains("--sizes") => "rperf -n 5 ",
        line if ["-n ", "-t ", "conf", "report", "--help"]
            .iter()
            .any(|word| line.contains(word)) =>
        {
            "rperf "
        }
        _ => "rperf -n 50 ",
    };
    line.replacen("rperf ", more, 1)
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn every_rperf_command_of_the_readme_does_what_it_says() {
    let all: BTreeSet<String> = readme()
        .into_iter()
        .filter(|line| line.split(' ').next() == Some("rperf"))
        .collect();
    let directory = std::env::temp_dir().join(format!("rperf-readme-{}", std::process::id()));
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir(&directory).unwrap();
    let secret = shell("openssl rand -hex 32 >FILE; chmod 600 FILE", &directory);
    assert!(secret.status.success(), "{secret:?}");
    for (nth, device) in devices().into_iter().enumerate() {
        let here = |line: &str| {
            let line = line.replace("HOST", &address(&device));
            line.replace("mlx5_0", &device).replace("mlx4_0", &device)
        };
        let serves = |line: &&String| {
            !["HOST", " -i", "report", "--help"]
                .iter()
                .any(|word| line.contains(word))
        };
        let (servers, clients): (Vec<_>, Vec<_>) = all.iter().partition(serves);
        assert!(
            servers.len() >= 3 && clients.len() >= 12,
            "{servers:?} {clients:?}"
        );
        for line in servers {
            let _server = Server::of(
                rperf()
                    .args(line.split(' ').skip(1))
                    .current_dir(&directory),
            );
            let secret = if line.contains("--token-file") {
                "--token-file FILE "
            } else {
                ""
            };
            let line = format!("rperf {secret}-n 50 {} rc_bw", address(&device));
            let output = shell(&line, &directory);
            assert!(output.status.success(), "{line}: {output:?}");
        }
        let _server = Server::of(&mut rperf());
        for line in clients {
            // A sweep over all sizes takes long, and needs no device of a kind.
            if line.contains("--sizes") && nth > 0 {
                continue;
            }
            let output = shell(&here(&shortened(line)), &directory);
            let (out, err) = (
                String::from_utf8_lossy(&output.stdout),
                String::from_utf8_lossy(&output.stderr),
            );
            if line.contains("ud_bw") && !connects_directly(&device) {
                assert!(err.contains("needs UD"), "{line}: {out} {err}");
                continue;
            }
            assert!(output.status.success(), "{line}: {out} {err}");
            assert!(
                !out.is_empty() || line.contains("report") || line.contains('>'),
                "{line}: {err}"
            );
        }
        let page = fs::read_to_string(directory.join("page.html")).unwrap();
        assert!(page.contains("<svg"), "{page}");
    }
    fs::remove_dir_all(&directory).unwrap();
}
