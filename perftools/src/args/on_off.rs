//! Values that are on or off; qperf's are numbers, of which 0 is off.

/// Reads such a value.
pub(super) fn on_off(text: &str) -> Result<bool, String> {
    match text {
        "on" | "yes" => Ok(true),
        "off" | "no" => Ok(false),
        n => n
            .parse::<u32>()
            .map(|n| n != 0)
            .map_err(|_| format!("`{text}`: say on or off")),
    }
}
