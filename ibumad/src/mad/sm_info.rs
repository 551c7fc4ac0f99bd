//! A subnet manager's state (IBA 14.2.5.13).

use super::bits::{field_value, record};
use super::datagram::AttrId;
use crate::identity::Guid;
use crate::newtype::c_value;

c_value! {
    /// What a subnet manager does.
    pub struct SmState(u8) {
        /// Nothing.
        NOT_ACTIVE = 0 => "not active",
        /// Looking around.
        DISCOVERING = 1 => "discovering",
        /// Waiting for the master to go.
        STANDBY = 2 => "standby",
        /// Managing the subnet.
        MASTER = 3 => "master",
    }
}

field_value!(SmState(u8));

record! {
    /// A subnet manager's state: the attribute SMInfo.
    pub struct SmInfo: 21 bytes, attribute AttrId::SM_INFO, {
        /// GUID of the port that it runs on.
        guid: Guid = 0 + 64,
        /// Its key, mostly hidden (0).
        sm_key: u64 = 64 + 64,
        /// Rises while it lives.
        act_count: u32 = 128 + 32,
        /// 0 to 15; the highest becomes the master.
        priority: u8 = 160 + 4,
        /// What it does.
        state: SmState = 164 + 4,
    }
}
