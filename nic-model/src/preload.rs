//! The start of a preloaded model, and functions for programs that load it.
#![allow(unsafe_code, reason = "a constructor and an exported function")]
#![allow(unreachable_pub, reason = "the linker finds the functions by name")]

use crate::model;
use crate::options::Options;

/// Starts the model if the environment asks for it.
extern "C" fn construct() {
    if let Some(options) = Options::from_environment()
        && let Err(error) = model::start(options)
    {
        eprintln!("nic-model: writing the files of sysfs: {error}");
        std::process::exit(2);
    }
}

/// Entry of the list of constructors.
// SAFETY: the loader calls the functions of this section before `main`, on the only thread.
#[unsafe(link_section = ".init_array")]
#[used]
static CONSTRUCTOR: extern "C" fn() = construct;

/// Runs the adapter for a moment, in step mode. Returns 1 if there was work, else 0.
#[unsafe(no_mangle)]
pub extern "C" fn nic_model_step() -> i32 {
    i32::from(crate::step())
}
