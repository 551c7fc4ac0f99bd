//! Management datagrams, and the records of subnet administration in them.

use std::fmt::Debug;

use ibumad::Mad;
use ibumad::mad::{NodeDescription, NodeInfo, PathRecord, PortInfo, SaMad, SmInfo, Smp, VendorMad};

use crate::assert_printable;

/// Reads every field of a record.
fn read(record: Option<impl Debug>) {
    if let Some(record) = record {
        assert_printable(&format!("{record:?}"));
    }
}

/// A datagram. One that is shorter is extended with zeros, as after its reception.
pub fn mad(data: &[u8]) {
    assert_eq!(Mad::from_bytes(data).is_some(), data.len() >= 256);
    let mut bytes = [0; 256];
    let len = data.len().min(256);
    bytes[..len].copy_from_slice(&data[..len]);
    let mad = Mad::from(bytes);
    assert_eq!(mad.as_bytes(), &bytes);
    read(Some(&mad));
    read(Some(mad.status()));
    read(Some(mad.response()));
    for text in [
        mad.class().to_string(),
        mad.method().to_string(),
        mad.status().to_string(),
    ] {
        assert_printable(&text);
    }
    if let Some(smp) = Smp::from_mad(&mad) {
        assert!(smp.initial_path().len() <= usize::from(smp.hop_count()));
        read(Some((smp.is_returning(), smp.m_key(), smp.hop_pointer())));
        attributes(smp.data());
    }
    if let Some(sa) = SaMad::from_mad(&mad) {
        read(Some((
            sa.sm_key(),
            sa.record_distance(),
            sa.component_mask(),
        )));
        read(PathRecord::from_bytes(sa.data()));
        read(SmInfo::from_record(sa.data()));
    }
    if let Some(vendor) = VendorMad::from_mad(&mad) {
        assert_printable(&vendor.text());
        let response = vendor.response(vendor.data());
        let again = VendorMad::from_mad(&response).expect("the same class");
        assert_eq!((again.oui(), again.data()), (vendor.oui(), vendor.data()));
    }
    attributes(data);
}

fn attributes(data: &[u8]) {
    read(NodeInfo::from_bytes(data));
    read(PortInfo::from_bytes(data));
    read(SmInfo::from_bytes(data));
    read(PathRecord::from_bytes(data));
    if let Some(name) = NodeDescription::from_bytes(data) {
        assert_printable(&name.text());
    }
}
