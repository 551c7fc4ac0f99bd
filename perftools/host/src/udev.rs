//! The rules of udev that name IPoIB interfaces.

use crate::root::Root;

/// The file with the rules.
pub const IPOIB_RULES: &str = "/etc/udev/rules.d/70-persistent-ipoib.rules";

/// Returns the rules, without comments.
pub(crate) fn ipoib_rules(root: &Root) -> Vec<String> {
    let text = root.text(IPOIB_RULES).unwrap_or_default();
    let lines = text.lines().map(str::trim);
    let rules = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    rules.map(str::to_owned).collect()
}
