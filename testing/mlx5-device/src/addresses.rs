//! Addresses of ports: each contains the number of the adapter in its network, which is its LID.

/// An EUI-64, to which the number is added. Its first byte is not 2, because the connection manager
/// keeps service identifiers that begin with 2 for itself (`ib_cm_listen`), and ib_srpt listens on
/// the GUID.
const GUIDS: u64 = 0x0000_5eff_fe10_0000;
/// Prefix of a subnet that a router can reach: tests of the workspace need an address that is not
/// link-local.
pub(crate) const SUBNET_PREFIX: u64 = 0xfec0_0000_0000_0000;
pub(crate) const DEFAULT_PKEY: u16 = 0xffff;

/// Returns the GUID of an adapter.
pub(crate) fn guid(number: u32) -> u64 {
    GUIDS + u64::from(number)
}

/// Returns the first GID of an adapter's port.
pub(crate) fn gid(number: u32) -> [u8; 16] {
    (u128::from(SUBNET_PREFIX) << 64 | u128::from(guid(number))).to_be_bytes()
}

/// Returns the LID of the port with a GID, if it can be one of this network.
pub(crate) fn lid(gid: &[u8]) -> Option<u16> {
    const MULTICAST: u16 = 0xc000;
    let (prefix, guid) = gid.split_at(8);
    let guid = u64::from_be_bytes(guid.try_into().ok()?);
    let number = u16::try_from(guid.checked_sub(GUIDS)?).ok()?;
    (prefix == SUBNET_PREFIX.to_be_bytes() && (1..MULTICAST).contains(&number)).then_some(number)
}
