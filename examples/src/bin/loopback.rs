//! The shortest complete program: it sends one message between two queue pairs of one process.
//!
//! `loopback rxe0`. The device must have a GID other than a link-local one; iWARP devices cannot
//! connect queue pairs without the connection manager.

#![forbid(unsafe_code)]

use ibverbs::{CqOptions, Device, QpOptions, Rc, RcPath, wr};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let name = std::env::args().nth(1).ok_or("usage: loopback DEVICE")?;
    let context = Device::by_name(&name)?.open()?;
    let port = context.query_port(1)?;
    let gid = context
        .gids(1)?
        .into_iter()
        .find(|entry| !entry.gid.is_link_local())
        .ok_or("select a GID: port 1 has no GID except link-local ones")?;

    let pd = context.alloc_pd()?;
    let mut cq = context.create_cq(CqOptions::default())?;
    let mut a = pd.create_qp::<Rc>(&cq, &cq, QpOptions::default())?;
    let mut b = pd.create_qp::<Rc>(&cq, &cq, QpOptions::default())?;

    let path = RcPath::new(1, gid.index, port.active_mtu);
    a.init(&path)?;
    b.init(&path)?;
    a.connect(&path, &b.endpoint(&path)?)?;
    b.connect(&path, &a.endpoint(&path)?)?;

    let mut message = pd.buf(5)?;
    message.copy_from_slice(b"hello");
    b.post_recv(wr::recv(pd.buf(64)?))?;
    a.post_send(wr::send(message))?;

    let mut received = None;
    while received.is_none() {
        for completion in cq.poll()? {
            if completion.queue() == a.id() {
                a.retire(completion)?.ok()?;
            } else {
                let retired = b.retire(completion)?;
                retired.ok()?;
                received = retired.into_buf();
            }
        }
    }
    println!(
        "received {:?}",
        String::from_utf8_lossy(&received.ok_or("the receive had no buffer")?)
    );
    Ok(())
}
