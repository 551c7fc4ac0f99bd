//! Client and server of `rping`, and their settings and messages.

pub mod client;
pub mod message;
pub mod server;
pub mod settings;

pub use settings::Settings;
