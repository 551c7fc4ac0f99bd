//! `opensm.conf`, its numbered instances, and `/etc/sysconfig/opensm`.

use super::root::{Root, number, unsigned};

/// Directories of opensm's configuration: that of Red Hat, then that of OpenSM.
pub(crate) const DIRECTORIES: [&str; 2] = ["/etc/rdma", "/etc/opensm"];
/// Environment file of the service unit on Red Hat, then on Debian.
pub(crate) const SYSCONFIG: [&str; 2] = ["/etc/sysconfig/opensm", "/etc/default/opensm"];

/// The keys of `opensm.conf` that are evaluated.
pub(crate) const CHECKED_KEYS: [&str; 10] = [
    "guid",
    "sm_priority",
    "subnet_prefix",
    "partition_config_file",
    "log_file",
    "dump_files_dir",
    "root_guid_file",
    "cn_guid_file",
    "io_guid_file",
    "guid_routing_order_file",
];
/// The keys that name a file with a GUID in each line.
const GUID_FILES: std::ops::Range<usize> = 6..10;
/// The keys of OpenSM 3.3.24 (`opt_tbl` in osm_subnet.c). It ignores other ones.
pub(crate) const KEYS: &str = "\
    guid m_key sm_key sa_key subnet_prefix m_key_lease_period m_key_protection_level \
    m_key_lookup sweep_interval max_wire_smps max_wire_smps2 max_smps_timeout console \
    console_port transaction_timeout transaction_retries long_transaction_timeout \
    max_msg_fifo_timeout sm_priority lmc lmc_esp0 max_op_vls force_link_speed \
    force_link_speed_ext force_link_width fdr10 reassign_lids ignore_other_sm single_thread \
    disable_multicast subnet_timeout packet_life_time vl_stall_count leaf_vl_stall_count \
    head_of_queue_lifetime leaf_head_of_queue_lifetime local_phy_errors_threshold \
    overrun_errors_threshold use_mfttop sminfo_polling_timeout polling_retry_number \
    force_heavy_sweep port_prof_ignore_file hop_weights_file dimn_ports_file \
    port_search_ordering_file port_profile_switch_nodes sweep_on_trap routing_engine \
    avoid_throttled_links connect_roots use_ucast_cache log_file log_max_size log_flags \
    force_log_flush accum_log_file partition_config_file no_partition_enforcement part_enforce \
    allow_both_pkeys keep_pkey_indexes sm_assigned_guid qos qos_policy_file \
    suppress_sl2vl_mad_status_errors dump_files_dir lid_matrix_dump_file lfts_file \
    root_guid_file cn_guid_file io_guid_file port_shifting scatter_ports max_reverse_hops \
    ids_guid_file guid_routing_order_file guid_routing_order_no_scatter sa_db_file sa_db_dump \
    torus_config do_mesh_analysis exit_on_fatal honor_guid2lid_file daemon sm_inactive \
    babbling_port_policy drop_event_subscriptions ipoib_mcgroup_creation_validation \
    mcgroup_join_validation use_original_extended_sa_rates_only max_rate_enum use_optimized_slvl \
    fsync_high_avail_files perfmgr perfmgr_redir perfmgr_sweep_time_s \
    perfmgr_max_outstanding_queries perfmgr_ignore_cas event_db_dump_file perfmgr_rm_nodes \
    perfmgr_log_errors perfmgr_query_cpi perfmgr_xmit_wait_log perfmgr_xmit_wait_threshold \
    event_plugin_name event_plugin_options node_name_map_name qos_max_vls qos_high_limit \
    qos_vlarb_high qos_vlarb_low qos_sl2vl qos_ca_max_vls qos_ca_high_limit qos_ca_vlarb_high \
    qos_ca_vlarb_low qos_ca_sl2vl qos_sw0_max_vls qos_sw0_high_limit qos_sw0_vlarb_high \
    qos_sw0_vlarb_low qos_sw0_sl2vl qos_swe_max_vls qos_swe_high_limit qos_swe_vlarb_high \
    qos_swe_vlarb_low qos_swe_sl2vl qos_rtr_max_vls qos_rtr_high_limit qos_rtr_vlarb_high \
    qos_rtr_vlarb_low qos_rtr_sl2vl congestion_control cc_key cc_max_outstanding_mads \
    cc_sw_cong_setting_control_map cc_sw_cong_setting_victim_mask cc_sw_cong_setting_credit_mask \
    cc_sw_cong_setting_threshold cc_sw_cong_setting_packet_size \
    cc_sw_cong_setting_credit_starvation_threshold \
    cc_sw_cong_setting_credit_starvation_return_delay cc_sw_cong_setting_marking_rate \
    cc_ca_cong_setting_port_control cc_ca_cong_setting_control_map cc_ca_cong_setting_ccti_timer \
    cc_ca_cong_setting_ccti_increase cc_ca_cong_setting_trigger_threshold \
    cc_ca_cong_setting_ccti_min cc_cct enable_quirks no_clients_rereg prefix_routes_file \
    consolidate_ipv6_snm_req lash_start_vl sm_sl nue_max_num_vls nue_include_switches log_prefix \
    per_module_logging_file quasi_ftree_indexing";

/// Returns `true` if a file of one of [`DIRECTORIES`] is read by an instance of opensm.
pub(crate) fn is_conf(name: &str) -> bool {
    let rest = name.strip_prefix("opensm.conf");
    let instance = |rest: &str| rest.strip_prefix('.').and_then(|n| n.parse::<u32>().ok());
    rest.is_some_and(|rest| rest.is_empty() || instance(rest).is_some())
}

/// An `opensm.conf` file. It has one `key value` pair per line, and `#` begins a comment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conf {
    /// The path of the file.
    pub path: String,
    /// The number of the instance. `None` for the base file.
    pub instance: Option<u32>,
    /// Line number, key and value of each entry.
    pub entries: Vec<(usize, String, String)>,
    /// Line number and key of each line with a key that has no value.
    pub missing_values: Vec<(usize, String)>,
    /// Lines with `=` between a key and its value.
    pub assignments: Vec<(usize, String)>,
    /// The files of GUIDs that the file names.
    pub guid_files: Vec<GuidFile>,
}

/// A file with a GUID in each line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GuidFile {
    /// The key of `opensm.conf` that names the file.
    pub key: &'static str,
    /// The path.
    pub path: String,
    /// The file exists.
    pub exists: bool,
    /// Line number and text of each line without a GUID.
    pub invalid: Vec<(usize, String)>,
}

impl GuidFile {
    fn read(root: &Root, key: &'static str, path: &str) -> Self {
        let text = root.text(path).unwrap_or_default();
        let lines = text.lines().enumerate().map(|(at, line)| (at + 1, line));
        let words = lines.filter_map(|(at, line)| {
            let word = line.split('#').next()?.split_whitespace().next()?;
            Some((at, word))
        });
        // Without the prefix `0x`, opensm reads a decimal number.
        let is_guid = |word: &str| {
            let digits = word.strip_prefix("0x").unwrap_or_default();
            digits.len() == 16 && unsigned(word).is_some()
        };
        let invalid = words.filter(|(_, word)| !is_guid(word));
        Self {
            key,
            exists: root.exists(path),
            invalid: invalid.map(|(at, word)| (at, word.to_owned())).collect(),
            path: path.to_owned(),
        }
    }
}

impl Conf {
    /// Parses the text of a file.
    pub fn parse(path: &str, text: &str) -> Self {
        let mut conf = Self {
            path: path.to_owned(),
            ..Self::default()
        };
        for (at, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or("").trim();
            if line.is_empty() {
                continue;
            }
            let (word, value) = line
                .split_once(char::is_whitespace)
                .map_or((line, None), |(word, value)| (word, Some(value.trim())));
            let key = word.split('=').next().unwrap_or(word);
            let is_assigned = word.contains('=') || value.is_some_and(|v| v.starts_with('='));
            let is_known = KEYS.split(' ').any(|known| known == key);
            if is_known && is_assigned {
                conf.assignments.push((at + 1, key.to_owned()));
            } else if let Some(value) = value {
                let value = unquoted(value).to_owned();
                conf.entries.push((at + 1, key.to_owned(), value));
            } else if is_known {
                conf.missing_values.push((at + 1, key.to_owned()));
            }
        }
        conf
    }

    /// Returns the last value of a key. `(null)`, which opensm writes for an unset value, is
    /// `None`.
    pub fn get(&self, key: &str) -> Option<&str> {
        let found = self.entries.iter().rev().find(|(_, k, _)| k == key);
        found
            .map(|(_, _, value)| value.as_str())
            .filter(|value| *value != "(null)" && !value.is_empty())
    }

    /// Returns the GUID of the port that opensm binds to. `None` lets opensm choose.
    pub fn guid(&self) -> Option<u64> {
        self.get("guid")
            .and_then(unsigned)
            .filter(|guid| *guid != 0)
    }

    /// Returns the priority among subnet managers.
    pub fn priority(&self) -> Option<i64> {
        self.get("sm_priority").and_then(number)
    }
}

/// The shell variables in `/etc/sysconfig/opensm`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sysconfig {
    /// The path of the file.
    pub path: String,
    /// The words of `GUIDS`.
    pub guids: Vec<String>,
    /// The text of `PRIORITY`.
    pub priority: Option<String>,
}

impl Sysconfig {
    /// Parses the text of a file.
    pub fn parse(path: &str, text: &str) -> Self {
        let mut parsed = Self {
            path: path.to_owned(),
            ..Self::default()
        };
        for line in text.lines() {
            let line = line.trim();
            let line = line.strip_prefix("export ").unwrap_or(line);
            match line.split_once('=') {
                Some(("GUIDS" | "PORTS", value)) => {
                    parsed.guids = unquoted(value)
                        .split_whitespace()
                        .map(str::to_owned)
                        .collect();
                }
                Some(("PRIORITY", value)) => {
                    parsed.priority =
                        Some(unquoted(value).to_owned()).filter(|value| !value.is_empty());
                }
                _ => {}
            }
        }
        // Debian writes `PORTS="ALL"`.
        parsed.guids.retain(|guid| guid != "ALL" && guid != "NONE");
        parsed
    }
}

fn unquoted(text: &str) -> &str {
    let text = text.trim();
    let inner = text
        .strip_prefix('"')
        .map(|rest| rest.split('"').next().unwrap_or(rest));
    inner
        .or_else(|| {
            text.strip_prefix('\'')
                .map(|rest| rest.split('\'').next().unwrap_or(rest))
        })
        .unwrap_or(text)
}

/// Returns `true` if a name looks like that of an instance, `opensm.conf.N`, and is not.
fn is_misnamed(name: &str) -> bool {
    let is_number = |text: &str| text.parse::<u32>().is_ok();
    let instance = name.strip_prefix("opensm.conf.");
    let rest = name.strip_prefix("opensm").unwrap_or_default();
    let has_words = rest.contains("conf") && rest.contains(|c: char| c.is_ascii_digit());
    let is_backup = ["~", "bak", "old", "orig", "save", "swp", "back", "20"]
        .iter()
        .any(|word| rest.contains(word));
    has_words && !instance.is_some_and(is_number) && !is_backup
}

/// The configuration files of opensm on a host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Files {
    /// The base file, then the numbered files in order.
    pub confs: Vec<Conf>,
    /// The environment file of the service unit.
    pub sysconfig: Option<Sysconfig>,
    /// Files that package updates left next to edited files.
    pub leftovers: Vec<String>,
    /// Files with a name like that of an instance, which opensm does not read.
    pub misnamed: Vec<String>,
}

impl Files {
    /// Finds and parses the files.
    pub(crate) fn find(root: &Root) -> Self {
        let mut files = Self::default();
        for directory in DIRECTORIES {
            for name in root.list(directory) {
                let path = format!("{directory}/{name}");
                let update = [".rpmnew", ".rpmsave", ".dpkg-dist", ".dpkg-new"]
                    .iter()
                    .any(|end| name.ends_with(end));
                if update
                    && (name.starts_with("opensm.conf") || name.starts_with("partitions.conf"))
                {
                    let _ = root.exists(&path);
                    files.leftovers.push(path);
                    continue;
                }
                if is_misnamed(&name) {
                    files.misnamed.push(path);
                    continue;
                }
                let Some(rest) = name.strip_prefix("opensm.conf") else {
                    continue;
                };
                let instance = rest
                    .strip_prefix('.')
                    .and_then(|number| number.parse().ok());
                if let Some(text) = root
                    .text(&path)
                    .filter(|_| rest.is_empty() || instance.is_some())
                {
                    let conf = Conf::parse(&path, &text);
                    let keys = CHECKED_KEYS[GUID_FILES].iter();
                    let named = keys.filter_map(|key| Some((*key, conf.get(key)?)));
                    let guid_files = named.map(|(key, path)| GuidFile::read(root, key, path));
                    files.confs.push(Conf {
                        instance,
                        guid_files: guid_files.collect(),
                        ..conf
                    });
                }
            }
        }
        files.sysconfig = SYSCONFIG
            .iter()
            .find_map(|path| root.text(path).map(|text| Sysconfig::parse(path, &text)));
        files
    }

    /// Returns the numbered files. If one exists, opensm reads no other file.
    pub(crate) fn instances(&self) -> impl Iterator<Item = &Conf> {
        self.confs.iter().filter(|conf| conf.instance.is_some())
    }

    /// Returns the files that opensm reads: the numbered files, or else the base file.
    pub fn effective(&self) -> Vec<&Conf> {
        let numbered: Vec<&Conf> = self.instances().collect();
        if numbered.is_empty() {
            self.base().into_iter().collect()
        } else {
            numbered
        }
    }

    /// Returns the files of partitions that opensm's configuration names. If only some instances
    /// name a file, the default file of the others is included.
    pub fn partition_files(&self) -> Vec<String> {
        let confs = self.effective();
        let mut paths: Vec<String> = confs
            .iter()
            .filter_map(|conf| conf.get("partition_config_file"))
            .map(str::to_owned)
            .collect();
        if let Some(conf) = confs
            .iter()
            .find(|conf| conf.get("partition_config_file").is_none() && !paths.is_empty())
        {
            paths.push(format!(
                "{}/partitions.conf",
                conf.path
                    .rsplit_once('/')
                    .map_or("", |(directory, _)| directory)
            ));
        }
        paths.sort();
        paths.dedup();
        paths
    }

    /// Returns the base file.
    pub fn base(&self) -> Option<&Conf> {
        self.confs.iter().find(|conf| conf.instance.is_none())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configuration_file_is_parsed() {
        let conf = Conf::parse(
            "x",
            "# comment\nguid 0x0002c90300317851\n\nsm_priority 15 # high\nlog_file (null)\nbare\nlog_prefix \"a b\"\nsm_key\n",
        );
        assert_eq!(conf.guid(), Some(0x0002_c903_0031_7851));
        assert_eq!(conf.priority(), Some(15));
        assert_eq!(
            (conf.get("log_file"), conf.get("log_prefix")),
            (None, Some("a b"))
        );
        assert_eq!(conf.missing_values, [(8, "sm_key".to_owned())]);
    }

    #[test]
    fn shell_variables_are_parsed() {
        let parsed = Sysconfig::parse("x", "#GUIDS=no\nGUIDS=\"0x1 0x2\"\nPRIORITY=15\n");
        assert_eq!(
            (parsed.guids.len(), parsed.priority.as_deref()),
            (2, Some("15"))
        );
        assert_eq!(
            Sysconfig::parse("x", "PORTS=\"ALL\"\nPRIORITY=\nGUIDS=\"")
                .guids
                .len(),
            0
        );
    }
}
