//! Compares the cost of the safe library with that of C: the instructions of the data path on
//! libibverbs and libmlx5 with a model of the adapter, and objects on the model or on a device. See
//! `README.md`.

mod cases;
mod raw;
mod rig;
mod safe;
mod spread;

use std::fmt::Display;
use std::process::{Command, ExitCode};

pub use cases::{CASES, Case, LENT, OTHERS, VARIANTS};
pub use rig::{PEER_STEPS, Rig, Verbs};
pub use spread::Spread;

/// Opens a device by its name. `model` starts the model of an mlx5 adapter in this process.
///
/// # Errors
/// Fails if the model cannot write its files, or if the device cannot be opened.
pub fn open(device: &str) -> ibverbs::Result<ibverbs::Context> {
    if device != "model" {
        return ibverbs::Device::by_name(device)?.open();
    }
    rig::start_model()?;
    ibverbs::Device::by_name("mlx5_0")?.open()
}

/// Returns the exit status of a program with this result. Prints the error.
pub fn exit_code(program: &str, result: Result<(), impl Display>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{program}: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs a command and returns the figures that it prints.
///
/// # Errors
/// What the command printed to standard error, if it does not print `N` figures, or why it could
/// not be run.
pub fn figures<const N: usize>(command: &mut Command) -> Result<[f64; N], String> {
    let output = command.output().map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&output.stdout);
    let figures = text.split_whitespace().map_while(|word| word.parse().ok());
    let figures = <[f64; N]>::try_from(figures.collect::<Vec<f64>>());
    figures.map_err(|_| String::from_utf8_lossy(&output.stderr).into_owned())
}
