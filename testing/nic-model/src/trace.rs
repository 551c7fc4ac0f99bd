//! Lines about the adapter on standard error.

/// Prints a line about the adapter, if the environment asks for it.
pub(crate) fn trace(text: impl FnOnce() -> String) {
    if std::env::var_os("NIC_MODEL_TRACE").is_some() {
        eprintln!("nic-model: {}", text());
    }
}
