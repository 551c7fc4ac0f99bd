//! Kernel modules: loaded now, and configured to be loaded after a reboot.

use std::collections::{BTreeMap, BTreeSet};

use crate::eipoib::OPENIB_CONF;
use crate::root::Root;

/// Directory of rdma-core's lists of modules to load.
pub const RDMA_MODULES: &str = "/etc/rdma/modules";
/// Directories of systemd's lists of modules to load.
pub const SYSTEMD_MODULES: [&str; 3] = [
    "/etc/modules-load.d",
    "/usr/lib/modules-load.d",
    "/run/modules-load.d",
];
/// Debian's list of modules to load.
pub(crate) const MODULES: &str = "/etc/modules";
/// Modules with a file or directory that exists whether they are loaded or built in.
const WITNESSES: [(&str, &str); 4] = [
    ("ib_uverbs", "/sys/class/infiniband_verbs/abi_version"),
    ("rdma_ucm", "/sys/class/misc/rdma_cm"),
    ("ib_umad", "/sys/class/infiniband_mad/abi_version"),
    ("rpcrdma", "/proc/sys/sunrpc/svc_rdma"),
];

/// Keys of `openib.conf`, and the modules that openibd loads unless their value is `no`
/// (`set_module_load_defaults` in the script of MLNX_OFED).
pub(crate) const OPENIBD: [(&str, &str); 3] = [
    ("UVERBS_LOAD", "ib_uverbs"),
    ("UMAD_LOAD", "ib_umad"),
    ("RDMA_UCM_LOAD", "rdma_ucm"),
];

/// The modules of the kernel, and those that are configured to be loaded at boot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Modules {
    loaded: BTreeSet<String>,
    present: BTreeSet<String>,
    configured: BTreeSet<String>,
    commented_out: BTreeMap<String, DisabledModule>,
    /// The modules that `rdma.conf` names, which is loaded for every kind of adapter.
    pub rdma_conf: Vec<String>,
}

/// A module whose line in a configuration file is commented out.
#[derive(Clone, Debug, PartialEq, Eq)]
struct DisabledModule {
    written: String,
    file: String,
}

impl Modules {
    /// Reads the lists.
    pub(crate) fn read(root: &Root) -> Self {
        let loaded = root.text("/proc/modules").unwrap_or_default();
        let first_words = loaded
            .lines()
            .filter_map(|line| line.split_whitespace().next());
        let mut modules = Self {
            loaded: first_words.map(normalized).collect(),
            ..Self::default()
        };
        let present = root.list("/sys/module").into_iter();
        let present = present.filter(|name| root.exists(&format!("/sys/module/{name}")));
        modules.present = present.collect();
        let witnessed = WITNESSES.iter().filter(|(_, path)| root.exists(path));
        let witnessed = witnessed.map(|(name, _)| (*name).to_owned());
        modules.present.extend(witnessed);
        for directory in [RDMA_MODULES].into_iter().chain(SYSTEMD_MODULES) {
            for file in root.files(directory, ".conf") {
                let text = root.text(&file).unwrap_or_default();
                modules.read_configuration(&text, &file);
            }
        }
        let text = root.text(MODULES).unwrap_or_default();
        modules.read_configuration(&text, MODULES);
        let openib = root.text(OPENIB_CONF);
        let has = |assignment: String| {
            let text = openib.as_deref().unwrap_or_default();
            text.lines().any(|line| line.trim() == assignment)
        };
        let by_openibd = OPENIBD.iter().filter(|_| has("ONBOOT=yes".to_owned()));
        let by_openibd = by_openibd.filter(|(key, _)| !has(format!("{key}=no")));
        modules
            .configured
            .extend(by_openibd.map(|(_, module)| (*module).to_owned()));
        modules
    }

    fn read_configuration(&mut self, text: &str, file: &str) {
        for line in text.lines().map(str::trim) {
            let written = line.trim_start_matches('#').trim();
            // A line with more than one word is a comment.
            if !is_module_name(written) {
                continue;
            }
            if line.starts_with('#') {
                let disabled = DisabledModule {
                    written: written.to_owned(),
                    file: file.to_owned(),
                };
                self.commented_out
                    .entry(normalized(written))
                    .or_insert(disabled);
                continue;
            }
            self.configured.insert(normalized(written));
            if file.strip_prefix(RDMA_MODULES) == Some("/rdma.conf") {
                self.rdma_conf.push(written.to_owned());
            }
        }
    }

    /// Returns `true` if the module is loaded and not built into the kernel.
    pub fn is_loaded(&self, name: &str) -> bool {
        self.loaded.contains(name)
    }

    /// Returns `true` if the module is loaded or built into the kernel.
    pub fn is_present(&self, name: &str) -> bool {
        let name = normalized(name);
        self.loaded.contains(&name) || self.present.contains(&name)
    }

    /// Returns `true` if a configuration file loads the module at boot.
    pub fn is_configured(&self, name: &str) -> bool {
        self.configured.contains(name)
    }

    /// Returns the command that uncomments the module in its configuration file and loads it.
    /// Returns `None` if the module is not commented out, or is configured elsewhere.
    pub fn enable_command(&self, name: &str) -> Option<String> {
        let DisabledModule { written, file } = self
            .commented_out
            .get(name)
            .filter(|_| !self.is_configured(name))?;
        let rdma_stem = file
            .strip_prefix(RDMA_MODULES)
            .and_then(|file| file.trim_start_matches('/').strip_suffix(".conf"));
        let service = match rdma_stem {
            Some(stem) => format!("rdma-load-modules@{stem}.service"),
            None => "systemd-modules-load.service".to_owned(),
        };
        Some(format!(
            "sed -i 's/^[# ]*{written}\\>/{written}/' {file} && systemctl restart {service}"
        ))
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
