//! Verbs that the drivers do not support. The table in `docs/drivers.md` must match the devices,
//! and an unsupported verb must fail with an error.

use std::os::fd::AsFd;
use std::time::Duration;

use ibverbs::{
    AccessFlags, AhAttr, Context, CqOptions, DatagramAttr, DeviceRegion, Error, ErrorKind, Gid,
    Lid, MemoryOptions, Mtu, Psn, Qkey, QpOptions, QpState, QueuePair, RawPacket, Rc, RcPath,
    SrqOptions, Uc, Ud,
    cq_ex::CqFields,
    flow::{FlowRule, FlowSpec},
    gid::GidEntry,
    mr::Advice,
    mw::{Type1, Type2},
    qp::{AlternatePath, Ece, OptionalOps, QpChange},
};

use crate::lab::{self, devices, installed_version, is_efa, is_mlx5, table};

const REMOTE_ACCESS: AccessFlags = AccessFlags::REMOTE_READ.union(AccessFlags::REMOTE_WRITE);

#[cfg(feature = "mlx5")]
const STREAMS: ibverbs::dc::StreamLimits = ibverbs::dc::StreamLimits {
    concurrent: 2,
    errored: 1,
};

/// Calls each verb and returns the results.
#[allow(clippy::too_many_lines, reason = "one entry for each row of the table")]
fn call_all(context: &Context) -> Vec<(&'static str, Result<(), Error>)> {
    let pd = context.alloc_pd().expect("protection domain");
    let cq = lab::cq(context);
    let region = pd.shared(4096, AccessFlags::REMOTE_READ).expect("region");
    let (fields, queue, pair) = (CqFields::new(), CqOptions::default(), QpOptions::default());
    let rc = || pd.create_qp::<Rc>(&cq, &cq, pair);
    let srq = || pd.create_srq(SrqOptions::new().max_wr(64));
    let file = std::fs::File::open("/proc/self/exe").expect("a file");
    let group: Gid = "ff0e::77".parse().expect("a GID");
    let gids = context.gids(1).expect("GID table");
    let own = gids
        .iter()
        .find(|entry| !entry.gid.is_link_local())
        .or(gids.first())
        .expect("a GID");
    vec![
        (
            "`ibv_create_cq_ex`: timestamp",
            context.create_cq_ex(queue, fields.timestamp()).map(drop),
        ),
        (
            "`ibv_create_cq_ex`: wall clock",
            context.create_cq_ex(queue, fields.wallclock()).map(drop),
        ),
        (
            "`ibv_create_cq_ex`: VLAN tag",
            context.create_cq_ex(queue, fields.cvlan()).map(drop),
        ),
        (
            "`ibv_create_cq_ex`: flow tag",
            context.create_cq_ex(queue, fields.flow_tag()).map(drop),
        ),
        (
            "`ibv_resize_cq`",
            context.create_cq(queue).and_then(|mut cq| cq.resize(512)),
        ),
        (
            "`ibv_modify_cq`",
            context
                .create_cq(queue)
                .and_then(|mut cq| cq.moderate(8, Duration::from_micros(8))),
        ),
        ("`ibv_query_rt_values_ex`", context.raw_clock().map(drop)),
        (
            "`ibv_create_qp`: RC",
            pd.create_qp::<Rc>(&cq, &cq, pair).map(drop),
        ),
        (
            "`ibv_create_qp`: UC",
            pd.create_qp::<Uc>(&cq, &cq, pair).map(drop),
        ),
        (
            "`ibv_create_qp`: UD",
            pd.create_qp::<Ud>(&cq, &cq, pair).map(drop),
        ),
        (
            "`ibv_create_qp`: RAW_PACKET",
            pd.create_qp::<RawPacket>(&cq, &cq, pair).map(drop),
        ),
        (
            "`ibv_create_flow`",
            rc().and_then(|mut qp| {
                qp.create_flow(&FlowRule::new(1, [FlowSpec::dst_mac([0xff; 6])]))
                    .map(drop)
            }),
        ),
        (
            "`ibv_create_qp`: XRC_SEND",
            pd.create_xrc_send_qp(&cq, pair).map(drop),
        ),
        ("`ibv_alloc_td`", context.alloc_td().map(drop)),
        ("`ibv_open_xrcd`", context.open_xrcd().map(drop)),
        (
            "`ibv_create_qp_ex`: send operations",
            match pd.create_qp::<Ud>(&cq, &cq, pair) {
                Ok(qp) if qp.is_extended() => Ok(()),
                Ok(_) => Err(no_send_ops()),
                Err(error) => Err(error),
            },
        ),
        (
            "`ibv_create_qp_ex`: ATOMIC_WRITE",
            pd.create_qp::<Rc>(&cq, &cq, pair.optional_ops(OptionalOps::ATOMIC_WRITE))
                .map(drop),
        ),
        (
            "`ibv_modify_qp`: alternate path",
            rc().and_then(|qp| set_alternate_path(qp, own)),
        ),
        (
            "`ibv_modify_qp`: queue length",
            rc().and_then(|mut qp| qp.modify(&QpChange::to(QpState::INIT).max_send_wr(128))),
        ),
        (
            "`ibv_query_ece`",
            rc().and_then(|qp| qp.query_ece().map(drop)),
        ),
        (
            "`ibv_set_ece`",
            rc().and_then(|mut qp| {
                let ece = qp.query_ece().unwrap_or(Ece {
                    vendor_id: 1,
                    options: 1,
                });
                qp.set_ece(ece)
            }),
        ),
        ("`ibv_create_srq`", srq().map(drop)),
        (
            "`ibv_modify_srq`: limit",
            srq().and_then(|mut srq| srq.set_limit(4)),
        ),
        (
            "`ibv_modify_srq`: depth",
            srq().and_then(|mut srq| srq.resize(128)),
        ),
        (
            "`ibv_query_srq`",
            srq().and_then(|srq| srq.query()).map(drop),
        ),
        (
            "`ibv_create_ah`",
            pd.create_ah(&AhAttr::for_gid(1, own.index, own.gid))
                .map(drop),
        ),
        (
            "`ibv_attach_mcast`",
            pd.create_qp::<Ud>(&cq, &cq, pair).and_then(|mut qp| {
                qp.start(&DatagramAttr::new(1, Qkey(1)))?;
                qp.attach_mcast(group, Lid(0))
            }),
        ),
        ("`ibv_alloc_mw`: type 1", pd.alloc_mw::<Type1>().map(drop)),
        ("`ibv_alloc_mw`: type 2", pd.alloc_mw::<Type2>().map(drop)),
        (
            "`ibv_reg_mr`: on demand",
            pd.shared_with(64, REMOTE_ACCESS, MemoryOptions::new().on_demand(true))
                .map(drop),
        ),
        (
            "`ibv_reg_mr_iova`: from address 0",
            pd.shared_with(64, REMOTE_ACCESS, MemoryOptions::new().zero_based(true))
                .map(drop),
        ),
        ("`ibv_advise_mr`", region.advise(Advice::PREFETCH, true)),
        (
            "`ibv_reg_dmabuf_mr`",
            pd.reg_dmabuf(file.as_fd(), 0, 4096, REMOTE_ACCESS)
                .map(drop),
        ),
        (
            "`ibv_reg_mr`: remote write",
            pd.shared(64, REMOTE_ACCESS).map(drop),
        ),
        ("`ibv_rereg_mr`", rereg(region)),
        (
            "`ibv_alloc_null_mr`",
            pd.null_region().map(|_: DeviceRegion| ()),
        ),
        ("`ibv_alloc_dm`", context.alloc_dm(64, 3).map(drop)),
        ("`ibv_query_pkey`", context.pkey(1, 0).map(drop)),
        #[cfg(feature = "mlx5")]
        (
            "`mlx5dv_create_qp`: DC",
            pd.create_dc_qp(&cq, pair).map(drop),
        ),
        #[cfg(feature = "mlx5")]
        (
            "`mlx5dv_create_qp`: DC streams",
            pd.create_dc_streams_qp(&cq, pair, STREAMS).map(drop),
        ),
        #[cfg(feature = "mlx5")]
        ("`mlx5dv_init_obj`", expose_queues(&pd)),
        #[cfg(feature = "efa")]
        (
            "`efadv_create_qp_ex`: SRD",
            pd.create_qp::<ibverbs::efa::Srd>(&cq, &cq, pair).map(drop),
        ),
        #[cfg(feature = "efa")]
        ("`efadv_query_device`", context.query_efa().map(drop)),
        #[cfg(feature = "efa")]
        (
            "`efadv_create_cq`: source GID",
            context
                .create_cq_ex(queue, ibverbs::efa::SourceGid)
                .map(drop),
        ),
    ]
}

fn no_send_ops() -> Error {
    Error::new(
        ErrorKind::Unsupported,
        "ibv_create_qp_ex",
        "no send operations",
    )
}

/// Sets an alternate path in the transition to RTR.
fn set_alternate_path(mut qp: QueuePair<Rc>, own: &GidEntry) -> Result<(), Error> {
    let path = RcPath::new(1, own.index, Mtu::B1024);
    qp.init(&path)?;
    let address = AhAttr::for_gid(1, own.index, own.gid);
    qp.modify(
        &QpChange::to(QpState::RTR)
            .address(address)
            .path_mtu(path.mtu)
            .dest_qpn(qp.qp_num())
            .rq_psn(Psn(0))
            .max_dest_rd_atomic(1)
            .min_rnr_timer(12)
            .alternate(AlternatePath::new(address)),
    )
}

#[cfg(feature = "mlx5")]
#[allow(unsafe_code)]
fn expose_queues(pd: &ibverbs::ProtectionDomain) -> Result<(), Error> {
    let mut cq = pd.context().create_cq(CqOptions::default())?;
    let mut qp = pd.create_qp::<Rc>(&cq, &cq, QpOptions::new())?;
    // SAFETY: the closure writes nothing.
    unsafe { qp.expose_queues(&mut cq, 0, |_| ()) }
}

fn rereg(region: ibverbs::SharedRegion) -> Result<(), Error> {
    let kind = region
        .rereg(REMOTE_ACCESS)
        .map_err(|error| error.error().kind());
    kind.map(drop)
        .map_err(|kind| Error::new(kind, "ibv_rereg_mr", "a region"))
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn drivers_table_matches_the_devices() {
    let mut table = table::rows();
    // These verbs belong to Cargo features.
    table.retain(|row| cfg!(feature = "efa") || !row.verb.starts_with("`efadv_"));
    table.retain(|row| cfg!(feature = "mlx5") || !row.verb.starts_with("`mlx5dv_"));
    for context in devices() {
        println!("device: {}", context.device_name());
        let results = call_all(&context);
        let mut wrong = Vec::new();
        for (verb, result) in &results {
            // libefa has it since rdma-core 61.
            if *verb == "`ibv_alloc_td`" && is_efa(&context) && installed_version() > 44 {
                continue;
            }
            let support = match result {
                Ok(()) => "yes",
                Err(error) if error.is_unsupported() => "**no**",
                // The file of the test is not a dma-buf.
                Err(error)
                    if *verb == "`ibv_reg_dmabuf_mr`"
                        && error.errno().is_some_and(|errno| errno.0 == libc::EINVAL) =>
                {
                    "yes"
                }
                // The driver of mlx5 refuses it with EINVAL.
                Err(_) if is_mlx5(&context) && *verb == "`ibv_modify_srq`: depth" => "**no**",
                Err(error) => panic!(
                    "{verb} on {}: expected success or unsupported: {error}",
                    context.device_name()
                ),
            };
            let row = table.iter().find(|row| row.verb == *verb);
            if row.map(|row| row.support(&context)) != Some(support) {
                wrong.push(format!("{verb}: {support}"));
            }
        }
        let device = context.device_name();
        assert!(
            wrong.is_empty(),
            "{device} differs from the table: {wrong:#?}"
        );
        assert_eq!(
            table.len(),
            results.len(),
            "every row of the table must be tested"
        );
    }
}
