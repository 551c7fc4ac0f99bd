//! Nothing is posted to a shared receive queue while it is exposed, except with the batch.
use ibverbs::{Buf, Error, SharedReceiveQueue, wr};

unsafe fn rule(srq: &mut SharedReceiveQueue, buf: Buf) {
    let _ = unsafe {
        srq.expose_queue(|_, _| -> Result<(), Error> {
            srq.post_recv(wr::recv(buf))?;
            Ok(())
        })
    };
}

fn main() {}
