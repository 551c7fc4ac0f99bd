//! Compares the cost of the safe library with that of C: the instructions of the data path on
//! libibverbs and libmlx5 with a model of the adapter, and objects on the model or on a device. See
//! `README.md`.

mod cases;
mod raw;
mod rig;
mod safe;
mod spread;

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
