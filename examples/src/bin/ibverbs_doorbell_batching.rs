//! Several writes and a send with one doorbell, on a queue pair that is connected to itself: a port
//! of the example `doorbell_batching` of another project's crate `ibverbs`. docs/comparison.md
//! compares both.
//!
//! ```toml
//! [dependencies]
//! rdma-verbs = { git = "https://github.com/rdma-rs/rdma-rs" }
//! ```
//!
//! On one host, also with Soft-RoCE (`rdma link add rxe0 type rxe netdev eth0`):
//!
//! ```text
//! $ ibverbs_doorbell_batching rxe0
//! ```

use ibverbs::{AccessFlags, Buf, CqOptions, Device, GidQuery, Pool, QpOptions, Rc, RcPath, wr};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const TEXT: &str = "Hello from chained RDMA writes!";
/// Tags of the two requests that complete.
const SENT: u64 = 1;
const RECEIVED: u64 = 2;

fn main() {
    if let Err(error) = run() {
        eprintln!("error: {error}");
        std::process::exit(1);
    }
}

fn run() -> Result<()> {
    let device = match std::env::args().nth(1) {
        Some(name) => Device::by_name(&name)?,
        None => Device::list()?.into_iter().next().ok_or("no device")?,
    };
    let context = device.open()?;
    let mut cq = context.create_cq(CqOptions::new().depth(16))?;
    let pd = context.alloc_pd()?;
    let gid = context.select_gid(1, &GidQuery::default())?.entry;
    let mtu = context.query_port(1)?.active_mtu;
    let path = RcPath::new(1, gid.index, mtu).access(AccessFlags::REMOTE_WRITE);
    let mut qp = pd.create_qp::<Rc>(&cq, &cq, QpOptions::new().max_send_wr(16))?;
    qp.init(&path)?;
    let endpoint = qp.endpoint(&path)?;
    qp.connect(&path, &endpoint)?;

    // Many requests use the text, so the queue pair holds it.
    let source = qp.hold(&pd.frozen_from(TEXT)?)?;
    let target = pd.shared(TEXT.len(), AccessFlags::REMOTE_WRITE)?;
    let pool = pd.pool(2, size_of::<u32>())?;

    let words = TEXT.split_inclusive(' ');
    let count = u32::try_from(words.clone().count())?;
    qp.post_recv(wr::recv(take(&pool)?).tag(RECEIVED))?;
    let mut notice = take(&pool)?;
    notice.copy_from_slice(&count.to_ne_bytes());
    qp.batch(|batch| -> Result<()> {
        let mut start = 0;
        for word in words {
            let from = source.slice(start..start + word.len());
            let to = target
                .remote()
                .slice(start as u64..start as u64 + word.len() as u64);
            let (from, to) = from.zip(to).ok_or("the memory is too small")?;
            batch.send(wr::write(from, to).signaled(false))?;
            start += word.len();
        }
        // Its completion shows that all have completed.
        Ok(batch.send(wr::send(notice).tag(SENT))?)
    })?;

    let mut pending = 2;
    while pending > 0 {
        for completion in cq.poll()? {
            let retired = qp.retire(completion)?;
            println!(
                "completion: tag {}, {}, {}",
                retired.tag(),
                retired.status(),
                retired.opcode()
            );
            retired.check()?;
            pending -= 1;
            if retired.tag() == SENT {
                println!("Send chain completed successfully.");
            } else {
                let buf = retired.into_buf().ok_or("the receive had no buffer")?;
                let received = u32::from_ne_bytes(buf[..].try_into()?);
                println!(
                    "Receive notification completed successfully. Count of writes: {received}"
                );
                assert_eq!(received, count);
            }
        }
    }
    let mut written = vec![0; TEXT.len()];
    target.read(0, &mut written)?;
    let written = String::from_utf8(written)?;
    println!("Written data in destination buffer: {written:?}");
    assert_eq!(written, TEXT);
    Ok(())
}

fn take(pool: &Pool) -> Result<Buf> {
    Ok(pool.take().ok_or("the pool is empty")?)
}
