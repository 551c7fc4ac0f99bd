//! The state of subnet managers (IBA 14.2.5.13).

use rdma_types::{Guid, Lid, c_value};

use super::bits::{field_value, record};
use super::datagram::AttrId;

c_value! {
    /// The state of a subnet manager.
    ///
    /// # Example
    /// ```
    /// use ibumad::mad::SmState;
    /// assert_eq!(SmState(3), SmState::MASTER);
    /// ```
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
    ///
    /// # Example
    /// ```no_run
    /// # fn f(smi: &ibumad::Smi) -> ibumad::Result<()> {
    /// let manager = smi.sm_info(&ibumad::Target::Lid(ibumad::Lid(1)))?;
    /// println!("{}, priority {}", manager.state(), manager.priority());
    /// # Ok(()) }
    /// ```
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

impl SmInfo {
    /// Attribute of the records of subnet managers in subnet administration: SMInfoRecord.
    pub const RECORD_ATTR: AttrId = AttrId(0x18);
    /// Bit of the component SMState in the mask of a query.
    pub const STATE_COMPONENT: u64 = 1 << 6;
    /// Offset of SMInfo in a record, after the LID and two reserved bytes.
    const RECORD_OFFSET: usize = 4;

    /// Returns the record for a query of the subnet manager in a state.
    pub fn record_in_state(state: SmState) -> [u8; 25] {
        let mut record = [0; 25];
        record[Self::RECORD_OFFSET + 20] = state.0 & 0xf;
        record
    }

    /// Reads a record: the LID of the subnet manager, and its attributes.
    pub fn from_record(record: &[u8]) -> Option<(Lid, Self)> {
        let (lid, _) = record.split_first_chunk::<2>()?;
        let info = Self::from_bytes(record.get(Self::RECORD_OFFSET..)?)?;
        Some((Lid(u16::from_be_bytes(*lid)), info))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_has_lid_and_attributes() {
        assert_eq!(SmInfo::STATE_COMPONENT, 0x40);
        let mut record = [0; 200];
        record[1] = 7;
        record[4 + 20] = 0xe2;
        let (lid, info) = SmInfo::from_record(&record).expect("a record");
        assert_eq!(
            (lid, info.priority(), info.state()),
            (Lid(7), 14, SmState::STANDBY)
        );
        assert_eq!(SmInfo::record_in_state(SmState::STANDBY)[24], 2);
        assert_eq!(SmInfo::from_record(&record[..20]), None);
    }
}
