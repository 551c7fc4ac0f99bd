//! Transceivers: the temperature and the alarms that they report.

use serde::{Deserialize, Serialize};

use crate::command::output;
use crate::netdev;

/// A transceiver in a port of an adapter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Transceiver {
    /// The network interface.
    pub netdev: String,
    /// The temperature, for example `52.13 degrees C`.
    pub temperature: Option<String>,
    /// The alarms and warnings that are on, for example `Laser rx power low alarm (Channel 1)`.
    pub alarms: Vec<String>,
}

/// Runs `ethtool -m`, which reads the pages of a transceiver (SFF-8472, SFF-8636, CMIS), for the
/// network interfaces of RDMA adapters. Only root can read them.
pub(crate) fn query() -> Vec<Transceiver> {
    let read = |netdev: String| Some(parse(&output("ethtool", &["-m", &netdev])?, netdev));
    netdev::of_adapters().into_iter().filter_map(read).collect()
}

/// Parses the output of `ethtool -m`, which has lines such as `Module voltage low alarm : Off`.
pub fn parse(text: &str, netdev: String) -> Transceiver {
    let mut found = Transceiver {
        netdev,
        ..Transceiver::default()
    };
    for (key, value) in text.lines().filter_map(|line| line.split_once(" : ")) {
        let (key, value) = (
            key.split_whitespace().collect::<Vec<_>>().join(" "),
            value.trim(),
        );
        if key == "Module temperature" {
            let celsius = value.split(" / ").next().unwrap_or(value);
            found.temperature = Some(celsius.to_owned());
        }
        let is_flag = [" alarm", " warning"].iter().any(|word| key.contains(word));
        if is_flag && value.eq_ignore_ascii_case("on") {
            found.alarms.push(key);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_that_are_on_are_found() {
        let text = "\
	Identifier                                : 0x11 (QSFP28)
	Module temperature                        : 71.50 degrees C / 160.70 degrees F
	Module temperature high alarm threshold   : 75.00 degrees C / 167.00 degrees F
	Alarm/warning flags implemented           : Yes
	Module temperature high warning           : On
	Laser rx power low alarm   (Channel 2)    : On
	Laser rx power low alarm   (Channel 3)    : Off
";
        let found = parse(text, "ens1f0np0".to_owned());
        assert_eq!(found.temperature.as_deref(), Some("71.50 degrees C"));
        let expected = [
            "Module temperature high warning",
            "Laser rx power low alarm (Channel 2)",
        ];
        assert_eq!(found.alarms, expected);
    }
}
