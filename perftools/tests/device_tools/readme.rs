//! The `rperf` commands of the README and of the recipes, run on real drivers.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use test_support::process;
use test_support::temp_dir::TempDir;

use crate::common::{
    Finished, Server, commands_of, connects_directly, devices, document, ipv4_address, rperf,
};

/// Runs a shell command in a directory, with `rperf` in the path.
fn shell(line: &str, directory: &Path) -> Finished {
    let programs = Path::new(env!("CARGO_BIN_EXE_rperf")).parent().unwrap();
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    let mut command = Command::new("sh");
    command.args(["-c", line]);
    process::output(command.current_dir(directory).env("PATH", path))
}

/// Adds options that make a command short, unless it has a count or a duration, and sets a limit
/// that an emulated machine can reach. Keeps all other words.
fn shortened(line: &str) -> String {
    let line = line
        .replace("-t 600", "-t 3")
        .replace("monitor -t 60", "monitor -t 3 --timeout 2s")
        .replace("--min-bw 90%", "--min-bw 1KB/s")
        .replace(">new.json", "| tee new.json >old.json");
    let with_options = match &line {
        line if line.starts_with("rperf tune ") => return line.replacen("tune", "tune -n 50", 1),
        line if line.contains("--sizes") => "rperf -n 5 ",
        line if ["-n ", "-t ", "conf", "report", "--help"]
            .iter()
            .any(|word| line.contains(word)) =>
        {
            "rperf "
        }
        _ => "rperf -n 50 ",
    };
    line.replacen("rperf ", with_options, 1)
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn all_rperf_commands_of_the_recipes_work() {
    let all: BTreeSet<String> = ["README.md", "docs/recipes.md"]
        .into_iter()
        .flat_map(|page| commands_of(&document(page)))
        // `ci/test mesh` runs those of a mesh.
        .filter(|line| line.split(' ').next() == Some("rperf") && !line.contains("mesh"))
        .collect();
    let temp_dir = TempDir::new();
    let dir = temp_dir.path();
    let token = shell("openssl rand -hex 32 >FILE; chmod 600 FILE", dir);
    assert!(token.success(), "{token}");
    let devices = devices();
    for (index, device) in devices.iter().enumerate() {
        let other = devices.iter().find(|other| *other != device);
        let other = other.map_or_else(String::new, |other| format!(",{other}"));
        let address = ipv4_address(device);
        let is_server = |line: &&String| {
            !["HOST", " -i", "report", "--help"]
                .iter()
                .any(|word| line.contains(word))
        };
        let (servers, clients): (Vec<_>, Vec<_>) = all.iter().partition(is_server);
        assert!(
            servers.len() >= 3 && clients.len() >= 12,
            "{servers:?} {clients:?}"
        );
        for line in servers {
            let arguments = line.split(' ').skip(1);
            let _server = Server::spawn(rperf().args(arguments).current_dir(dir));
            let token = if line.contains("--token-file") {
                "--token-file FILE "
            } else {
                ""
            };
            let line = format!("rperf {token}-n 50 {address} rc_bw");
            let output = shell(&line, dir);
            assert!(output.success(), "{line}: {output}");
        }
        let _server = Server::spawn(&mut rperf());
        for line in clients {
            // A sweep over all sizes takes long. One device is enough.
            if line.contains("--sizes") && index > 0 {
                continue;
            }
            // Thousands of queue pairs take long to connect.
            let line = shortened(line)
                .replace("--qps 4096", "--qps 16")
                .replace("HOST", &address)
                .replace(",mlx5_1", &other)
                .replace("mlx5_0", device)
                .replace("mlx4_0", device);
            let output = shell(&line, dir);
            if line.contains("ud_bw") && !connects_directly(device) {
                assert!(
                    output.stderr.contains("does not support UD"),
                    "{line}: {output}"
                );
                continue;
            }
            if line.contains("--flow-label") && !connects_directly(device) {
                assert!(output.stderr.contains("is iWARP"), "{line}: {output}");
                continue;
            }
            assert!(output.success(), "{line}: {output}");
            assert!(
                !output.stdout.is_empty() || line.contains("report") || line.contains('>'),
                "{line}: {output}"
            );
        }
        let page = fs::read_to_string(dir.join("page.html")).unwrap();
        assert!(page.contains("<svg"), "{page}");
    }
}
