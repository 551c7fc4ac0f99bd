//! Serves the adapter at the socket that is the argument.

use std::path::PathBuf;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let (Some(socket), None) = (arguments.next(), arguments.next()) else {
        eprintln!(
            "usage: mlx5-device SOCKET: serves a PCI function over vfio-user, for one client"
        );
        return ExitCode::from(2);
    };
    match mlx5_device::serve(&PathBuf::from(socket)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("mlx5-device: {error}");
            ExitCode::FAILURE
        }
    }
}
