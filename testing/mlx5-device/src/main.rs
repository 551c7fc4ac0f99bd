//! A ConnectX adapter in software, for the kernel's unmodified driver `mlx5_core`.
//!
//! The program serves a PCI function over vfio-user. QEMU's device `vfio-user-pci` connects to its
//! socket and gives it the guest's memory and interrupts.

mod adapter;
mod bar;
mod capabilities;
mod command_queue;
mod commands;
mod config_space;
mod device;
mod event_queue;
mod function;
mod guest_memory;
mod initialization_segment;
mod interrupts;
mod layout;
mod status;
mod table;

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
    match function::serve(&PathBuf::from(socket)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("mlx5-device: {error}");
            ExitCode::FAILURE
        }
    }
}
