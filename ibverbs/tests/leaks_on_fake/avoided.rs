//! Uses of each provider that the library avoids. A receive that never completes is leaked on some.

use fake_provider::{Fake, Profile, Provider};
use ibverbs::{CqOptions, ErrorKind, RawPacket, Rc, SrqOptions, Ud, wr};

use crate::exclusive;
use crate::fixture::{open, path, small};

/// Returns what a program can do with a device of a provider.
fn possible(provider: Provider) -> Vec<&'static str> {
    let fake = Fake::new(Profile {
        provider,
        more_verbs: true,
        ..Profile::RXE
    });
    let context = open(&fake);
    let pd = context.alloc_pd().expect("domain");
    let mut cq = context.create_cq(CqOptions::new().depth(15)).expect("cq");
    let mut qp = pd.create_qp::<Rc>(&cq, &cq, small()).expect("qp");
    qp.init(&path()).expect("INIT state");
    let ud = pd.create_qp::<Ud>(&cq, &cq, small()).expect("UD");
    let xrc = pd.create_xrc_send_qp(&cq, small()).expect("XRC");
    let memory = context.alloc_dm(8, 0).expect("memory");
    let refused = |result: ibverbs::Result<()>| match result {
        Ok(()) => false,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
            assert!(error.help().is_some(), "{error}");
            true
        }
    };
    let addresses = small().device_addresses(true);
    let mut bytes = [0; 8];
    let possible = [
        ("extended", qp.is_extended()),
        ("inline", qp.caps().max_inline_data > 0),
        ("inline UD", ud.caps().max_inline_data > 0),
        ("inline XRC", xrc.caps().max_inline_data > 0),
        ("empty receive", qp.post_recv(wr::recv(wr::Empty)).is_ok()),
        ("SRQ", !refused(pd.create_srq(SrqOptions::new()).map(drop))),
        (
            "addresses",
            !refused(pd.create_qp::<Rc>(&cq, &cq, addresses).map(drop)),
        ),
        (
            "raw addresses",
            !refused(pd.create_qp::<RawPacket>(&cq, &cq, addresses).map(drop)),
        ),
        ("write DM", !refused(memory.write(0, &bytes))),
        ("read DM", !refused(memory.read(0, &mut bytes))),
        ("resize", !refused(cq.resize(31))),
    ];
    let possible = possible.into_iter().filter(|(_, is_possible)| *is_possible);
    possible.map(|(name, _)| name).collect()
}

/// docs/drivers.md, "What is avoided". mlx5 is in `mlx5_scatter.rs` of nic-model, because libmlx5
/// creates its queue pairs.
#[test]
fn what_a_provider_makes_unsafe_is_avoided() {
    let _guard = exclusive();
    let all = possible(Provider::Rxe);
    assert_eq!(all.len(), 11, "{all:?}");
    for (provider, avoided) in [
        (Provider::Siw, vec![]),
        (Provider::BnxtRe, vec!["extended", "resize"]),
        (
            Provider::Cxgb4,
            vec!["inline", "inline UD", "inline XRC", "SRQ"],
        ),
        (Provider::Efa, vec!["empty receive"]),
        (Provider::Hns, vec!["addresses", "raw addresses"]),
        (Provider::Irdma, vec!["empty receive", "SRQ"]),
        (
            Provider::Mana,
            vec![
                "inline",
                "inline UD",
                "inline XRC",
                "SRQ",
                "write DM",
                "read DM",
            ],
        ),
        (Provider::Mlx4, vec!["raw addresses"]),
        (Provider::Ocrdma, vec!["inline UD"]),
        (Provider::Qedr, vec!["inline XRC", "SRQ"]),
        (Provider::Unknown, all.clone()),
    ] {
        let mut expected = all.clone();
        expected.retain(|name| !avoided.contains(name));
        assert_eq!(possible(provider), expected, "{provider:?}");
    }
}
