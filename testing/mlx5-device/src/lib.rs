//! A ConnectX adapter in software, for the kernel's unmodified driver `mlx5_core`.
//!
//! The program of this crate serves a PCI function over vfio-user. QEMU's device `vfio-user-pci`
//! connects to its socket and gives it the guest's memory and interrupts.

mod adapter;
mod addresses;
mod bar;
mod capabilities;
mod command_queue;
mod commands;
mod config_space;
#[cfg(test)]
mod data_tests;
mod device;
mod event_queue;
mod function;
mod guest_memory;
mod initialization_segment;
mod interrupts;
mod layout;
mod mads;
mod status;

pub use function::serve;
