//! Memory keys.

use nic_model::engine::{Buffer, KeyMemory, MemoryKey, rights};

use super::{PAGES, buffer};
use crate::adapter::Adapter;
use crate::layout::{Field, structures};
use crate::status::{Failure, Status, ensure};

structures! {
    mkc {
        FREE = 0x1, 1;
        ACCESS_MODE_4_2 = 0x3, 3;
        UMR_EN = 0x10, 1;
        A = 0x11, 1;
        RW = 0x12, 1;
        RR = 0x13, 1;
        LW = 0x14, 1;
        ACCESS_MODE_1_0 = 0x16, 2;
        MKEY_7_0 = 0x38, 8;
        LENGTH64 = 0x60, 1;
        EN_RINVAL = 0x67, 1;
        PD = 0x68, 24;
        START_ADDR = 0x80, 64;
        LEN = 0xc0, 64;
        LOG_PAGE_SIZE = 0x1db, 5;
    }

    /// The index of the key, at the same offset in outputs and inputs.
    key {
        MKEY_INDEX = 0x48, 24;
    }
}

/// Byte range of the context.
const CONTEXT: std::ops::Range<usize> = 0x10..0x50;
/// Access modes of keys of physical addresses, of keys whose memory is a list of pages, and of keys
/// that consist of others, such as windows.
const PHYSICAL: u64 = 0;
const PAGE_LIST: u64 = 1;
const INDIRECT: u64 = 2;

/// Creates a key. One that only a request on a queue could give memory permits no access.
pub(super) fn create(
    adapter: &mut Adapter,
    input: &[u8],
    output: &mut [u8],
) -> Result<(), Failure> {
    let context = &input[CONTEXT];
    let mode = mkc::ACCESS_MODE_4_2.get(context) << 2 | mkc::ACCESS_MODE_1_0.get(context);
    let (mut iova, mut length) = (mkc::START_ADDR.get(context), mkc::LEN.get(context));
    let is_free = mkc::FREE.get(context) == 1;
    let memory = match mode {
        // A request gives the memory to it.
        INDIRECT if is_free && mkc::UMR_EN.get(context) == 1 => {
            let kind = if mkc::EN_RINVAL.get(context) == 1 {
                2
            } else {
                1
            };
            KeyMemory::Window(kind)
        }
        PAGE_LIST if !is_free => {
            let size = mkc::LOG_PAGE_SIZE.get(context);
            let offset = iova & ((1 << size) - 1);
            let memory = &adapter.memory;
            KeyMemory::Region(buffer(memory, &input[PAGES..], size, offset, length)?)
        }
        PHYSICAL if !is_free && mkc::LENGTH64.get(context) == 1 => {
            let parts = adapter.memory.all();
            (iova, length) = (0, parts.last().map_or(0, |part| part.at + part.length));
            KeyMemory::Region(Buffer { parts, offset: 0 })
        }
        _ => KeyMemory::Nothing,
    };
    let right = |field: Field, right| if field.get(context) == 1 { right } else { 0 };
    let index = adapter.engine.create_key(&MemoryKey {
        variant: u8::try_from(mkc::MKEY_7_0.get(context)).expect("the field has 8 bits"),
        pd: mkc::PD.get32(context),
        access: right(mkc::LW, rights::LOCAL_WRITE)
            | right(mkc::RW, rights::REMOTE_WRITE)
            | right(mkc::RR, rights::REMOTE_READ)
            | right(mkc::A, rights::REMOTE_ATOMIC)
            | right(mkc::UMR_EN, rights::BIND),
        iova,
        length,
        memory,
    });
    let index = index.map_err(|_| Failure::new(Status::NoResource, "the key cannot be created"))?;
    key::MKEY_INDEX.set(output, u64::from(index));
    Ok(())
}

pub(super) fn destroy(adapter: &mut Adapter, input: &[u8], _: &mut [u8]) -> Result<(), Failure> {
    let existed = adapter.engine.destroy_key(key::MKEY_INDEX.get32(input));
    ensure(existed, Status::BadResource, "no such key")
}
