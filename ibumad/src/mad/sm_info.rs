//! The state of subnet managers (IBA 14.2.5.13).

use rdma_types::{Guid, c_value};

use super::bits::{field_value, record};
use super::datagram::AttrId;

c_value! {
    /// The state of a subnet manager.
    pub struct SmState(u8) {
        /// Disabled by the master.
        NOT_ACTIVE = 0 => "not active",
        /// Exploring the subnet.
        DISCOVERING = 1 => "discovering",
        /// Ready to replace the master.
        STANDBY = 2 => "standby",
        /// Managing the subnet.
        MASTER = 3 => "master",
    }
}

field_value!(SmState(u8));

record! {
    /// The state of a subnet manager: the attribute SMInfo.
    pub struct SmInfo: 21 bytes, attribute AttrId::SM_INFO, {
        /// GUID of the port that the subnet manager runs on.
        guid: Guid = 0 + 64,
        /// SM_Key; usually 0, because subnet managers do not reveal it.
        sm_key: u64 = 64 + 64,
        /// Activity counter, which increases while the subnet manager runs.
        act_count: u32 = 128 + 32,
        /// Priority, 0 to 15. The subnet manager with the highest priority becomes the master.
        priority: u8 = 160 + 4,
        /// State.
        state: SmState = 164 + 4,
    }
}
