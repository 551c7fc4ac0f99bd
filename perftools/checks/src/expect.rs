//! The requirements of `check --expect`.

use std::fmt::Write;
use std::str::FromStr;

use host::HostFacts;
use host::pci_link::PciLink;

use super::finding::Finding;

/// Requirements of `check --expect`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expectation {
    /// Minimum number of ACTIVE ports.
    pub ports: Option<usize>,
    /// Minimum rate of each ACTIVE port in Gb/s.
    pub rate: Option<u32>,
    /// Properties of a good host, from [`manifest`].
    pub properties: Vec<Property>,
}

/// A property of a host, of a device or of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Property {
    /// The PCI address of a device, or its name if it is a software device. That of a port also has
    /// a slash and the number.
    pub object: String,
    /// The name of the property, for example `firmware`.
    pub name: String,
    /// The value.
    pub value: String,
}

/// The object of properties of the whole host.
const HOST: &str = "host";

impl Expectation {
    /// Parses a manifest: a property in each line, and comments after `#`.
    ///
    /// # Errors
    /// Returns the number and the text of a line without three words.
    pub fn from_manifest(text: &str) -> Result<Self, String> {
        let lines = text.lines().enumerate();
        let lines = lines.map(|(at, line)| (at + 1, line.split('#').next().unwrap_or("").trim()));
        let parse =
            |(at, line): (usize, &str)| match line.splitn(3, ' ').collect::<Vec<_>>().as_slice() {
                [object, name, value] => Ok(Property {
                    object: (*object).to_owned(),
                    name: (*name).to_owned(),
                    value: (*value).to_owned(),
                }),
                _ => Err(format!("line {at}: `{line}`: expected OBJECT NAME VALUE")),
            };
        let properties = lines.filter(|(_, line)| !line.is_empty()).map(parse);
        Ok(Self {
            properties: properties.collect::<Result<_, _>>()?,
            ..Self::default()
        })
    }
}

/// Returns the properties that every host of a kind should have.
fn properties(facts: &HostFacts) -> Vec<Property> {
    let mut properties = Vec::new();
    let mut add = |object: &str, name: &str, value: Option<String>| {
        properties.extend(value.map(|value| Property {
            object: object.to_owned(),
            name: name.to_owned(),
            value,
        }));
    };
    let gpus = facts.probe.pci.iter().filter(|function| function.is_gpu());
    let gpus = Some(gpus.count()).filter(|count| *count > 0);
    add(HOST, "devices", Some(facts.devices.len().to_string()));
    add(HOST, "gpus", gpus.map(|count| count.to_string()));
    for device in &facts.devices {
        let object = device.slot.as_ref().unwrap_or(&device.name);
        let link = |pci: &PciLink| format!("{} x{}", pci.current_speed, pci.current_width);
        add(object, "board", device.board_id.clone());
        add(object, "firmware", device.fw_ver.clone());
        add(object, "pcie", device.pci.as_ref().map(link));
        for port in &device.ports {
            let object = format!("{object}/{}", port.port);
            add(&object, "state", Some(port.state.name.clone()));
            let rate = port.rate.filter(|_| port.is_active());
            add(&object, "rate", rate.map(|rate| rate.to_string()));
        }
    }
    properties
}

/// Returns the text that [`Expectation::from_manifest`] parses.
pub fn manifest(facts: &HostFacts) -> String {
    let mut text = "# written by ribinfo expect; remove what may differ\n".to_owned();
    for property in properties(facts) {
        let Property {
            object,
            name,
            value,
        } = property;
        let _ = writeln!(text, "{object} {name} {value}");
    }
    text
}

/// Compares the properties with those of a manifest.
fn check_properties(facts: &HostFacts, expected: &[Property]) -> Vec<Finding> {
    let found = properties(facts);
    let compare = |expected: &Property| {
        let Property {
            object,
            name,
            value,
        } = expected;
        let same = |property: &&Property| (&property.object, &property.name) == (object, name);
        let text = match found.iter().find(same) {
            Some(found) if found.value == *value => return None,
            Some(found) => format!("{name} is {}, but the manifest has {value}", found.value),
            None => format!("{name} is missing, but the manifest has {value}"),
        };
        let remedy = match name.as_str() {
            "devices" | "board" | "gpus" => "lspci (is it in its slot?); dmesg | grep -i pci",
            "firmware" => "update the firmware, or write the manifest again: ribinfo expect",
            _ => "ribinfo check link port (for the reasons)",
        };
        Some(Finding::fault(text).on(object).with_remedy(remedy))
    };
    let mut findings: Vec<Finding> = expected.iter().filter_map(compare).collect();
    if findings.is_empty() && !expected.is_empty() {
        let count = expected.len();
        findings.push(Finding::ok(format!(
            "{count} properties are those of the manifest"
        )));
    }
    findings
}

impl FromStr for Expectation {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut expectation = Self::default();
        let invalid = || format!("`{text}`: expected ports=N, rate=GBPS, or both with a comma");
        for part in text.split(',') {
            match part.split_once('=') {
                Some(("ports", number)) => {
                    expectation.ports = Some(number.parse().map_err(|_| invalid())?);
                }
                Some(("rate", number)) => {
                    expectation.rate = Some(number.parse().map_err(|_| invalid())?);
                }
                _ => return Err(invalid()),
            }
        }
        Ok(expectation)
    }
}

/// Compares the ports with the requirements.
pub(crate) fn check_expected(facts: &HostFacts, expect: &Expectation) -> Vec<Finding> {
    let mut findings = Vec::new();
    let active = || facts.ports().filter(|(_, port)| port.is_active());
    if let Some(ports) = expect.ports {
        let count = active().count();
        let noun = if count == 1 { "port is" } else { "ports are" };
        let text = format!("{count} {noun} ACTIVE, {ports} are expected");
        findings.push(if count < ports {
            Finding::fault(text).with_remedy("ribinfo check port (for the reasons)")
        } else {
            Finding::ok(text)
        });
    }
    if let Some(expected) = expect.rate {
        for (device, port) in active() {
            let on = format!("{}/{}", device.name, port.port);
            let Some(rate) = port.rate else { continue };
            let text = format!("{rate}, at least {expected} Gb/sec are expected");
            findings.push(
                if rate.mbps < expected.saturating_mul(1000) {
                    Finding::fault(text).with_remedy("ribinfo check link (for the reasons)")
                } else {
                    Finding::ok(text)
                }
                .on(on),
            );
        }
    }
    findings.extend(check_properties(facts, &expect.properties));
    for finding in &mut findings {
        finding.check = "expect";
    }
    findings
}
