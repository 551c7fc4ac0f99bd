//! Commands that start and stop the adapter.

use super::{header_in, pages};
use crate::adapter::{Adapter, Phase};
use crate::capabilities::Capabilities;
use crate::layout::structures;
use crate::status::{Failure, Status, ensure};

structures! {
    query_issi_out {
        CURRENT_ISSI = 0x50, 16;
        SUPPORTED_ISSI_DW0 = 0x360, 32;
    }

    set_issi_in {
        CURRENT_ISSI = 0x50, 16;
    }

    query_pages_out {
        FUNCTION_ID = 0x50, 16;
        NUM_PAGES = 0x60, 32;
    }

    manage_pages_in {
        INPUT_NUM_ENTRIES = 0x60, 32;
    }

    manage_pages_out {
        OUTPUT_NUM_ENTRIES = 0x40, 32;
    }

    query_adapter_param_block {
        IEEE_VENDOR_ID = 0xc8, 24;
    }
}

/// Byte offset of the structure after the header in inputs and outputs.
const BODY: usize = 0x10;
/// Versions of the interface: 0, and 1, in which the driver uses the newer queries of ports.
const ISSI_VERSIONS: u64 = 0b11;
const VENDOR: u64 = 0x2c9;
/// Name of the board in `query_adapter_param_block`, at its `vsd_contd_psid`.
const PSID: &[u8] = b"NIC_MODEL";
const PSID_OFFSET: usize = BODY + 0x780 / 8;

/// Pages that the adapter asks for before and in `INIT_HCA`. Their content has no meaning.
const BOOT_PAGES: u64 = 4;
const INIT_PAGES: u64 = 16;

pub(super) fn enable(adapter: &mut Adapter, _: &[u8], _: &mut [u8]) -> Result<(), Failure> {
    adapter.objects.phase = Phase::Enabled;
    Ok(())
}

pub(super) fn disable(adapter: &mut Adapter, _: &[u8], _: &mut [u8]) -> Result<(), Failure> {
    let kept = adapter.objects.pages.len();
    ensure(
        kept == 0,
        Status::BadResource,
        "the adapter still has pages of the driver",
    )?;
    adapter.objects.phase = Phase::Disabled;
    adapter.objects.capabilities = Capabilities::new();
    Ok(())
}

pub(super) fn query_issi(_: &mut Adapter, _: &[u8], output: &mut [u8]) -> Result<(), Failure> {
    query_issi_out::CURRENT_ISSI.set(output, 0);
    query_issi_out::SUPPORTED_ISSI_DW0.set(output, ISSI_VERSIONS);
    Ok(())
}

pub(super) fn set_issi(_: &mut Adapter, input: &[u8], _: &mut [u8]) -> Result<(), Failure> {
    let known = ISSI_VERSIONS >> set_issi_in::CURRENT_ISSI.get(input).min(63) & 1 == 1;
    ensure(
        known,
        Status::BadParameter,
        "the adapter does not have this version",
    )
}

pub(super) fn query_pages(_: &mut Adapter, input: &[u8], output: &mut [u8]) -> Result<(), Failure> {
    let wanted = match header_in::OP_MOD.get(input) {
        1 => BOOT_PAGES,
        2 => INIT_PAGES,
        3 => 0,
        _ => return Err(Failure::new(Status::BadParameter, "unknown kind of pages")),
    };
    // Zero for the function itself, which is a physical one.
    query_pages_out::FUNCTION_ID.set(output, 0);
    query_pages_out::NUM_PAGES.set(output, wanted);
    Ok(())
}

pub(super) fn manage_pages(
    adapter: &mut Adapter,
    input: &[u8],
    output: &mut [u8],
) -> Result<(), Failure> {
    const CANNOT_GIVE: u64 = 0;
    const GIVE: u64 = 1;
    const TAKE: u64 = 2;
    let count = manage_pages_in::INPUT_NUM_ENTRIES.get32(input) as usize;
    let held = &mut adapter.objects.pages;
    match header_in::OP_MOD.get(input) {
        CANNOT_GIVE => Ok(()),
        GIVE => {
            let given: Vec<u64> = pages(&input[BODY..]).take(count).collect();
            ensure(
                given.len() == count,
                Status::BadInputLength,
                "the list of pages is too short",
            )?;
            let aligned = given.iter().all(|page| *page != 0 && page % 4096 == 0);
            ensure(
                aligned,
                Status::BadParameter,
                "an address is not that of a page",
            )?;
            let new = given.iter().all(|page| !held.contains(page));
            ensure(
                new,
                Status::BadParameter,
                "the adapter has the page already",
            )?;
            held.extend(given);
            Ok(())
        }
        TAKE => {
            let capacity = (output.len() - BODY) / 8;
            let taken = held.split_off(held.len() - count.min(capacity).min(held.len()));
            manage_pages_out::OUTPUT_NUM_ENTRIES.set(output, taken.len() as u64);
            for (entry, page) in output[BODY..].chunks_exact_mut(8).zip(taken) {
                entry.copy_from_slice(&page.to_be_bytes());
            }
            Ok(())
        }
        _ => Err(Failure::new(
            Status::BadParameter,
            "unknown operation on pages",
        )),
    }
}

pub(super) fn query_capabilities(
    adapter: &mut Adapter,
    input: &[u8],
    output: &mut [u8],
) -> Result<(), Failure> {
    // The lowest bit asks for the present values.
    let (kind, current) = capability_type(input);
    let capabilities = adapter.objects.capabilities.get(kind, current);
    let capabilities = capabilities.ok_or(Failure::new(
        Status::BadParameter,
        "no capabilities of this type",
    ))?;
    output[BODY..BODY + capabilities.len()].copy_from_slice(capabilities);
    Ok(())
}

pub(super) fn set_capabilities(
    adapter: &mut Adapter,
    input: &[u8],
    _: &mut [u8],
) -> Result<(), Failure> {
    let early = adapter.objects.phase < Phase::Initialized;
    ensure(
        early,
        Status::BadSystemState,
        "capabilities are set before INIT_HCA",
    )?;
    let (kind, _) = capability_type(input);
    let capabilities = &input[BODY..BODY + crate::capabilities::SIZE];
    let known = adapter.objects.capabilities.set(kind, capabilities);
    ensure(known, Status::BadParameter, "no capabilities of this type")
}

/// Returns the type of capabilities in the operation modifier, and whether its lowest bit is set.
fn capability_type(input: &[u8]) -> (u16, bool) {
    let operation = u16::try_from(header_in::OP_MOD.get(input)).expect("the field has 16 bits");
    (operation >> 1, operation & 1 == 1)
}

pub(super) fn query_adapter(_: &mut Adapter, _: &[u8], output: &mut [u8]) -> Result<(), Failure> {
    query_adapter_param_block::IEEE_VENDOR_ID
        .at(BODY)
        .set(output, VENDOR);
    output[PSID_OFFSET..PSID_OFFSET + PSID.len()].copy_from_slice(PSID);
    Ok(())
}

pub(super) fn init(adapter: &mut Adapter, _: &[u8], _: &mut [u8]) -> Result<(), Failure> {
    let enough = adapter.objects.pages.len() as u64 >= BOOT_PAGES + INIT_PAGES;
    ensure(
        enough,
        Status::BadSystemState,
        "the adapter has too few pages",
    )?;
    adapter.objects.phase = Phase::Initialized;
    Ok(())
}

pub(super) fn teardown(adapter: &mut Adapter, _: &[u8], _: &mut [u8]) -> Result<(), Failure> {
    let kept = adapter.count();
    ensure(
        kept == 0,
        Status::BadResource,
        "the driver has not destroyed its objects",
    )?;
    adapter.objects.phase = Phase::Enabled;
    Ok(())
}

pub(super) fn set_driver_version(
    _: &mut Adapter,
    input: &[u8],
    _: &mut [u8],
) -> Result<(), Failure> {
    let text = input[BODY..]
        .split(|byte| *byte == 0)
        .next()
        .unwrap_or_default();
    println!("driver: {}", String::from_utf8_lossy(text));
    Ok(())
}
