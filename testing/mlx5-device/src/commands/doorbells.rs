//! Pages of doorbells: user access regions (UAR).

use crate::adapter::Adapter;
use crate::layout::structures;
use crate::status::{Failure, Status, ensure};

structures! {
    /// The index of the page, at the same offset in all inputs and outputs.
    page {
        UAR = 0x48, 24;
    }
}

pub(super) fn alloc(adapter: &mut Adapter, _: &[u8], output: &mut [u8]) -> Result<(), Failure> {
    let index = adapter.objects.doorbell_pages.insert(()).ok();
    let index = index.ok_or(Failure::new(Status::NoResource, "all pages are in use"))?;
    page::UAR.set(output, u64::from(index));
    Ok(())
}

pub(super) fn dealloc(adapter: &mut Adapter, input: &[u8], _: &mut [u8]) -> Result<(), Failure> {
    let index = page::UAR.get32(input);
    let used = adapter
        .objects
        .event_queues
        .iter()
        .any(|(_, queue)| queue.uar() == index);
    ensure(!used, Status::BadResource, "an event queue uses the page")?;
    let page = adapter.objects.doorbell_pages.remove(index);
    ensure(
        page.is_some(),
        Status::BadResource,
        "the page is not allocated",
    )
}
