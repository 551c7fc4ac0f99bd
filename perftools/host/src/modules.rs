//! The modules of the kernel, and those that rdma-core loads for every adapter.

use std::collections::BTreeSet;

use crate::eipoib::OPENIB_CONF;
use crate::root::Root;

/// The modules that rdma-core loads for every kind of adapter.
pub const RDMA_CONF: &str = "/etc/rdma/modules/rdma.conf";
/// Modules with a file or directory that exists whether they are loaded or built in.
const WITNESSES: [(&str, &str); 4] = [
    ("ib_uverbs", "/sys/class/infiniband_verbs/abi_version"),
    ("rdma_ucm", "/sys/class/misc/rdma_cm"),
    ("ib_umad", "/sys/class/infiniband_mad/abi_version"),
    ("rpcrdma", "/proc/sys/sunrpc/svc_rdma"),
];

/// The modules of the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Modules {
    present: BTreeSet<String>,
    /// The drivers are those of MLNX_OFED, whose service openibd loads them.
    pub has_openibd: bool,
    /// The modules that [`RDMA_CONF`] names.
    pub rdma_conf: Vec<String>,
}

impl Modules {
    /// Reads the lists.
    pub(crate) fn read(root: &Root) -> Self {
        let loaded = root.text("/proc/modules").unwrap_or_default();
        let first_words = loaded
            .lines()
            .filter_map(|line| line.split_whitespace().next());
        let built_in = root.list("/sys/module").into_iter();
        let built_in = built_in.filter(|name| root.exists(&format!("/sys/module/{name}")));
        let witnessed = WITNESSES.iter().filter(|(_, path)| root.exists(path));
        let witnessed = witnessed.map(|(name, _)| (*name).to_owned());
        let conf = root.text(RDMA_CONF).unwrap_or_default();
        let named = conf.lines().map(str::trim);
        Self {
            present: first_words
                .map(normalized)
                .chain(built_in)
                .chain(witnessed)
                .collect(),
            has_openibd: root.text(OPENIB_CONF).is_some(),
            rdma_conf: named
                .filter(|name| is_module_name(name))
                .map(str::to_owned)
                .collect(),
        }
    }

    /// Returns `true` if the module is loaded or built into the kernel.
    pub fn is_present(&self, name: &str) -> bool {
        self.present.contains(&normalized(name))
    }
}

/// Returns `true` if the text can be the name of a module.
pub(crate) fn is_module_name(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
}

/// Returns the name as the kernel writes it.
fn normalized(name: &str) -> String {
    name.replace('-', "_")
}
