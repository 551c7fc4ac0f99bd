//! Connects a queue pair of the crate `ibverbs` 0.9 to one of this library and exchanges a message
//! in each direction, as two hosts do when only one of them has migrated.
//!
//! usage: coexist DEVICE     (a RoCE device, for example rxe0)

use std::error::Error;
use std::net::Ipv6Addr;
use std::time::{Duration, Instant};

use ibverbs::{Context, CqOptions, Endpoint, GidQuery, Lid, Psn, QpOptions, Qpn, Rc, RcPath, wr};

const LIMIT: Duration = Duration::from_secs(10);

/// The endpoint of the other crate's queue pair. Its packet sequence numbers start at 0.
fn endpoint(old: old_ibverbs::QueuePairEndpoint) -> Endpoint {
    let gid = old.gid.map_or(0, |gid| {
        (u128::from(gid.subnet_prefix()) << 64) | u128::from(gid.interface_id())
    });
    Endpoint {
        qpn: Qpn(old.num),
        psn: Psn(0),
        lid: Lid(old.lid),
        gid: Ipv6Addr::from_bits(gid).into(),
    }
}

/// Calls `poll` until it returns a value, at most for the time limit.
fn wait<T>(
    mut poll: impl FnMut() -> Result<Option<T>, Box<dyn Error>>,
) -> Result<T, Box<dyn Error>> {
    let start = Instant::now();
    while start.elapsed() < LIMIT {
        if let Some(value) = poll()? {
            return Ok(value);
        }
    }
    Err("no completion within 10 s".into())
}

fn open_old(name: &str) -> Result<old_ibverbs::Context, Box<dyn Error>> {
    let devices = old_ibverbs::devices()?;
    let device = devices
        .iter()
        .find(|device| {
            device
                .name()
                .is_some_and(|n| n.to_bytes() == name.as_bytes())
        })
        .ok_or_else(|| format!("the old crate finds no RDMA device named `{name}`"))?;
    Ok(device.open()?)
}

fn exchange(old: &old_ibverbs::Context, new: &Context) -> Result<(), Box<dyn Error>> {
    let gid = new.select_gid(1, &GidQuery::default())?.entry;
    let path = RcPath::new(1, gid.index, new.query_port(1)?.active_mtu);

    // This library.
    let pd = new.alloc_pd()?;
    let mut cq = new.create_cq(CqOptions::default())?;
    let mut qp = pd.create_qp::<Rc>(&cq, &cq, QpOptions::default())?;

    // The other crate, with the same GID.
    let old_pd = old.alloc_pd()?;
    let old_cq = old.create_cq(16, 0)?;
    let mut memory = old_pd.allocate::<u8>(16)?;
    let prepared = old_pd
        .create_qp(&old_cq, &old_cq, old_ibverbs::ibv_qp_type::IBV_QPT_RC)
        .set_gid_index(u32::from(gid.index.0))
        .build()?;

    qp.init(&path)?;
    qp.connect(&path, &endpoint(prepared.endpoint()))?;
    let ours = qp.endpoint(&path)?;
    // An endpoint of the other crate has no public constructor for its GID, so it starts as the
    // crate's own, which has the same one here.
    let mut theirs = prepared.endpoint();
    theirs.num = ours.qpn.0;
    theirs.lid = ours.lid.0;
    let mut old_qp = prepared.handshake(theirs)?;

    let old_poll = |wr_id| {
        wait(|| {
            let mut entries = [old_ibverbs::ibv_wc::default(); 4];
            let done = old_cq.poll(&mut entries)?;
            match done.first() {
                Some(entry) if entry.error().is_some() => {
                    Err(format!("{:?}", entry.error()).into())
                }
                entry => Ok(entry.filter(|entry| entry.wr_id() == wr_id).map(|_| ())),
            }
        })
    };

    // The other crate sends.
    qp.post_recv(wr::recv(pd.buf(16)?))?;
    memory[..5].copy_from_slice(b"hello");
    // SAFETY: `memory` is neither accessed nor dropped before the completion is polled.
    unsafe { old_qp.post_send(&mut memory, ..5, 1) }?;
    old_poll(1)?;
    let received = wait(|| {
        let Some(completion) = cq.poll()?.next() else {
            return Ok(None);
        };
        let retired = qp.retire(completion)?;
        retired.check()?;
        Ok(retired.into_buf())
    })?;
    assert_eq!(&received[..], b"hello");

    // This library sends.
    // SAFETY: `memory` is neither accessed nor dropped before the completion is polled.
    unsafe { old_qp.post_receive(&mut memory, 8..16, 2) }?;
    let mut message = pd.buf(6)?;
    message.copy_from_slice(b"answer");
    qp.post_send(wr::send(message))?;
    old_poll(2)?;
    assert_eq!(&memory[8..14], b"answer");
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let name = std::env::args().nth(1).ok_or("usage: coexist DEVICE")?;
    let old = open_old(&name)?;
    let new = ibverbs::Device::by_name(&name)?.open()?;
    exchange(&old, &new)?;
    println!("{name}: ibverbs 0.9 and rdma-verbs exchanged a message in each direction");
    Ok(())
}
