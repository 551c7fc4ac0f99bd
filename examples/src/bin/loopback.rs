//! The shortest complete program: it sends one message between two queue pairs of one process.
//!
//! ```toml
//! [dependencies]
//! rdma-verbs = { git = "https://github.com/rdma-rs/rdma-rs" }
//! ```
//!
//! On one host, also with Soft-RoCE (`rdma link add rxe0 type rxe netdev eth0`):
//!
//! ```text
//! $ loopback rxe0
//! ```

use ibverbs::{CqOptions, Device, GidQuery, QpOptions, Rc, RcPath, wr};

fn main() {
    if let Err(error) = run() {
        eprintln!("error: {error}");
        std::process::exit(1);
    }
}

fn run() -> Result<(), Box<dyn std::error::Error>> {
    let device = std::env::args().nth(1).ok_or("expected argument: DEVICE")?;
    let context = Device::by_name(&device)?.open()?;
    let gid = context.select_gid(1, &GidQuery::default())?.entry;
    let path = RcPath::new(1, gid.index, context.query_port(1)?.active_mtu);

    let pd = context.alloc_pd()?;
    let mut cq = context.create_cq(CqOptions::default())?;
    let mut a = pd.create_qp::<Rc>(&cq, &cq, QpOptions::default())?;
    let mut b = pd.create_qp::<Rc>(&cq, &cq, QpOptions::default())?;
    a.init(&path)?;
    b.init(&path)?;
    a.connect(&path, &b.endpoint(&path)?)?;
    b.connect(&path, &a.endpoint(&path)?)?;

    let mut message = pd.buf(5)?;
    message.copy_from_slice(b"hello");
    b.post_recv(wr::recv(pd.buf(64)?))?;
    a.post_send(wr::send(message))?; // `message` belongs to the queue pair now

    let mut received = None;
    while received.is_none() {
        for completion in cq.poll()? {
            if completion.queue() == a.id() {
                a.retire(completion)?.check()?;
            } else {
                let retired = b.retire(completion)?;
                retired.check()?;
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
