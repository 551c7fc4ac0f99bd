//! Short texts: sizes and times, addresses, files of sysfs and procfs, and the text of peers. Also
//! the messages of the kernel over netlink.

use std::fmt::{Debug, Display};
use std::str::FromStr;

use base::cpus::{CpuList, parse_list};
use base::device_id::DeviceId;
use base::peer_text::{printable, printable_json};
use base::units::{Rate, Size, Style, parse_time, show_time};
use host::device::{NamedCode, parse_guid};
use host::eipoib::slave;
use host::hwaddr::HwAddr;
use host::limits::{has_ipc_lock, memlock};
use host::listeners::listening;
use host::nfs::mounts;
use host::root::{number, unsigned};
use host::{nm, rate, resources};
use measure::spec::MinBandwidth;
use measure::spec::path::StaticRate;
use measure::stats;
use serde_json::Value;

use crate::{assert_printable, lossy};
use perftools::ribping::target::Target;

/// Parses a text, and asserts that the printed value is parsed to the same value.
fn round_trip<T: FromStr + Display + PartialEq + Debug>(text: &str) {
    let Ok(value) = text.parse::<T>() else {
        return;
    };
    let printed = value.to_string();
    let Ok(again) = printed.parse::<T>() else {
        panic!("{text:?} is parsed and printed as {printed:?}, which is not parsed");
    };
    assert_eq!(again, value, "{text:?} is printed as {printed:?}");
}

/// Sizes, rates, times and percentages.
pub fn units(data: &[u8]) {
    let text = lossy(data);
    round_trip::<Size>(&text);
    if let Ok(size) = text.parse::<Size>() {
        assert_printable(&Style::default().size(size.0).to_string());
    }
    if let Ok(Rate(bytes)) = text.parse() {
        // Rates are printed as bandwidths.
        #[allow(clippy::cast_precision_loss, reason = "it is only printed")]
        let figure = Style::default().bandwidth(bytes as f64);
        assert_printable(&figure.to_string());
        assert_eq!(format!("{bytes} B/s").parse(), Ok(Rate(bytes)));
    }
    if let Ok(time) = parse_time(&text) {
        assert_eq!(parse_time(&show_time(time)), Ok(time));
    }
    if let Ok(MinBandwidth::LinkShare(share)) = text.parse() {
        assert!(share > 0.0 && share <= 1.0);
    }
    if let Ok(rate) = text.parse::<StaticRate>() {
        let printed = rate.to_string();
        let name = printed.strip_suffix(" Gbit/s").unwrap_or("max");
        assert_eq!(name.parse(), Ok(rate));
    }
    round_trip::<CpuList>(&text);
    if let Some(all) = parse_list(&text) {
        assert!(all.len() <= 2 << 16);
    }
}

/// Addresses of ports, queue pairs and memory.
pub fn addresses(data: &[u8]) {
    let text = lossy(data);
    round_trip::<ibverbs::Gid>(&text);
    round_trip::<ibumad::Guid>(&text);
    round_trip::<ibumad::Lid>(&text);
    round_trip::<ibverbs::Endpoint>(&text);
    round_trip::<ibverbs::RemoteMemory>(&text);
    round_trip::<DeviceId>(&text);
    round_trip::<HwAddr>(&text);
    for (is_lid, is_guid) in [(false, false), (true, false), (false, true)] {
        let _ = Target::parse(&text, is_lid, is_guid);
    }
}

/// Files of sysfs and procfs, and of the configuration of a host.
pub fn sysfs(data: &[u8]) {
    let text = lossy(data);
    if let Some(rate) = rate::Rate::parse(&text) {
        assert_eq!(rate::Rate::parse(&rate.to_string()), Some(rate));
        assert_ne!(rate.ibstat(), "");
    }
    if let Some(guid) = parse_guid(&text) {
        assert_eq!(parse_guid(&guid.to_string()), Some(guid));
    }
    let _ = (NamedCode::parse(&text), number(&text), unsigned(&text));
    let _ = (memlock(&text), has_ipc_lock(&text), listening(&text));
    for mount in mounts(&text) {
        assert!(!mount.source.starts_with('#') && !mount.target.is_empty());
    }
    if let Some(slave) = slave(&text) {
        assert!(slave.vlan.is_none_or(|vlan| (1..4095).contains(&vlan)));
    }
    if let Some(profile) = nm::parse(&text, String::new()) {
        assert!(!profile.interface.is_empty() && profile.mtu != Some(0));
    }
    if let Some(time) = stats::cpu::HostCpuTime::parse(&text) {
        let _ = time.busy();
    }
}

/// The text of a peer, alone and in JSON.
pub fn peer_text(data: &[u8]) {
    let text = lossy(data);
    let safe = printable(&text);
    assert_printable(&safe);
    assert_eq!(printable(&safe), safe);
    let json = printable_json(&text);
    let (before, after) = (
        serde_json::from_str::<Value>(&text),
        serde_json::from_str::<Value>(&json),
    );
    assert_eq!(before.is_ok(), after.is_ok());
    if let Ok(value) = after {
        assert_strings(&value);
    }
}

fn assert_strings(value: &Value) {
    match value {
        Value::String(text) => assert_printable(text),
        Value::Array(items) => items.iter().for_each(assert_strings),
        Value::Object(map) => {
            for (key, value) in map {
                assert_printable(key);
                assert_strings(value);
            }
        }
        _ => {}
    }
}

/// The messages of the kernel about RDMA objects and counters.
pub fn netlink(data: &[u8]) {
    for text in resources::texts(data) {
        assert_printable(&text);
    }
    let _ = host::tcp::total_retransmitted(data);
}
