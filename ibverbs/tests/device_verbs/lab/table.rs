//! The table of unsupported verbs in `docs/drivers.md`. The tests in `unsupported.rs` compare it
//! with the devices.

use ibverbs::{Context, device::TransportType};

/// A verb with its support by each provider.
pub(crate) struct Row {
    pub(crate) verb: &'static str,
    support: [&'static str; 4],
}

impl Row {
    /// Returns the support by the provider of a device: "yes" or "**no**".
    pub(crate) fn support(&self, context: &Context) -> &'static str {
        let name = context.device_name();
        let column = match context.device().transport() {
            TransportType::IWARP => 1,
            _ if name.starts_with("mlx5") => 2,
            _ if name.starts_with("efa") => 3,
            _ => 0,
        };
        self.support[column]
    }
}

/// Returns the rows of the table.
pub(crate) fn rows() -> Vec<Row> {
    let text = include_str!("../../../../docs/drivers.md");
    let (_, rest) = text
        .split_once("## Unsupported verbs")
        .expect("the section");
    let (section, _) = rest.split_once("\n##").expect("a following section");
    section
        .lines()
        .filter(|line| line.starts_with("| `"))
        .map(|line| {
            let mut cells = line.trim_matches('|').split('|').map(str::trim);
            let mut cell = || cells.next().expect("five cells");
            Row {
                verb: cell(),
                support: [(); 4].map(|()| cell()),
            }
        })
        .collect()
}
