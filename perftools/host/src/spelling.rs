//! Misspelled words of configuration files.

use base::spelling::similar;

use crate::eipoib::OPENIB_CONF;
use crate::limits::{DROP_INS, LIMITS};
use crate::nfs::EXPORTS;
use crate::nm;
use crate::opensm::{self, DIRECTORIES, SYSCONFIG};
use crate::root::Root;

/// A word that is spelled nearly as a known one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misspelled {
    /// The path of the file.
    pub file: String,
    /// The line number.
    pub line: usize,
    /// The word.
    pub word: String,
    /// The known word.
    pub known: &'static str,
}

/// The known words of a kind of file, separated by spaces.
pub(crate) type Known = &'static str;
/// Returns the words of a line that should be known ones.
pub(crate) type Words = fn(&str) -> Vec<(&str, Known)>;

/// The variables of `/etc/sysconfig/opensm`, and those of `/etc/default/opensm`.
const OPENSM_VARIABLES: Known = "GUIDS PRIORITY PORTS";
/// The variables of `openib.conf` that the packages of OFED write.
const OPENIB_VARIABLES: Known = "\
    ONBOOT NODE_DESC NODE_DESC_TIME_BEFORE_UPDATE NODE_DESC_UPDATE_TIMEOUT POST_START_DELAY \
    UCM_LOAD UMAD_LOAD UVERBS_LOAD RDMA_CM_LOAD RDMA_UCM_LOAD RENICE_IB_MAD RUN_SYSCTL \
    RUN_AFFINITY_TUNER RUN_MLNX_TUNE MTHCA_LOAD QIB_LOAD IPATH_LOAD EHCA_LOAD MLX4_LOAD \
    MLX4_EN_LOAD MLX4_VNIC_LOAD MLX5_LOAD CXGB3_LOAD CXGB4_LOAD NES_LOAD IPOIB_LOAD SET_IPOIB_CM \
    SET_IPOIB_CHANNELS IPOIB_MTU E_IPOIB_LOAD LOAD_EIPOIB SDP_LOAD SRP_LOAD SRPT_LOAD \
    SRPHA_ENABLE SRP_DAEMON_ENABLE SRP_TARGET_LOAD ISER_LOAD RDS_LOAD QLGC_VNIC_LOAD CX3_ETH_ONLY";
/// Types of limits, and items (limits.conf(5)).
const LIMIT_TYPES: Known = "soft hard";
const LIMIT_ITEMS: Known = "core data fsize memlock nofile rss stack cpu nproc as maxlogins \
    maxsyslogins nonewprivs priority locks sigpending msgqueue nice rtprio chroot";
const UNLIMITED: Known = "unlimited infinity";
/// Settings of an InfiniBand interface, and transport modes (nm-settings(5)).
const PROFILE_KEYS: Known = "transport-mode p-key mac-address interface-name parent mtu type";
const TRANSPORT_MODES: Known = "datagram connected";
/// Options of an exported directory (exports(5)).
const EXPORT_OPTIONS: Known = "\
    secure insecure rw ro async sync no_wdelay wdelay nohide hide crossmnt no_subtree_check \
    subtree_check insecure_locks secure_locks no_auth_nlm auth_nlm mountpoint fsid nordirplus refer \
    replicas pnfs no_pnfs security_label sec root_squash no_root_squash all_squash no_all_squash \
    anonuid anongid no_acl acl xprtsec reexport";

pub(crate) fn opensm_words(line: &str) -> Vec<(&str, Known)> {
    let key = line.split(|c: char| c.is_whitespace() || c == '=').next();
    vec![(key.unwrap_or_default(), opensm::KEYS)]
}

fn variable(line: &str) -> Option<(&str, &str)> {
    let line = line.strip_prefix("export ").unwrap_or(line);
    let (key, value) = line.split_once('=')?;
    Some((key.trim(), value.trim()))
}

pub(crate) fn opensm_variable(line: &str) -> Vec<(&str, Known)> {
    let variable = variable(line);
    variable.map_or(Vec::new(), |(key, _)| vec![(key, OPENSM_VARIABLES)])
}

pub(crate) fn openib_variable(line: &str) -> Vec<(&str, Known)> {
    let variable = variable(line);
    variable.map_or(Vec::new(), |(key, _)| vec![(key, OPENIB_VARIABLES)])
}

pub(crate) fn limit_words(line: &str) -> Vec<(&str, Known)> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [_, kind, item, value] = words.as_slice() else {
        return Vec::new();
    };
    vec![
        (*kind, LIMIT_TYPES),
        (*item, LIMIT_ITEMS),
        (*value, UNLIMITED),
    ]
}

pub(crate) fn profile_words(line: &str) -> Vec<(&str, Known)> {
    let Some((key, value)) = variable(line) else {
        return Vec::new();
    };
    let mut words = vec![(key, PROFILE_KEYS)];
    words.extend((key == "transport-mode").then_some((value, TRANSPORT_MODES)));
    words
}

pub(crate) fn export_words(line: &str) -> Vec<(&str, Known)> {
    let lists = line
        .split('(')
        .skip(1)
        .filter_map(|rest| rest.split(')').next());
    let options = lists.flat_map(|list| list.split(','));
    let names = options.map(|option| option.split('=').next().unwrap_or_default().trim());
    names.map(|name| (name, EXPORT_OPTIONS)).collect()
}

/// Returns the words of a line, without its comment, that are misspelled, with the known ones.
pub(crate) fn misspelled_words(line: &str, words: Words) -> Vec<(&str, &'static str)> {
    let line = line.split('#').next().unwrap_or_default().trim();
    let words = words(line).into_iter();
    words
        .filter_map(|(word, known)| Some((word, similar(word, known.split(' '))?)))
        .collect()
}

/// Returns the misspelled words of the configuration files.
pub(crate) fn misspelled(root: &Root) -> Vec<Misspelled> {
    let mut found = Vec::new();
    let mut read = |file: &str, words: Words| {
        for (at, line) in root.text(file).unwrap_or_default().lines().enumerate() {
            let words = misspelled_words(line, words).into_iter();
            found.extend(words.map(|(word, known)| Misspelled {
                file: file.to_owned(),
                line: at + 1,
                word: word.to_owned(),
                known,
            }));
        }
    };
    let mut read_all = |files: Vec<String>, words: Words| {
        for file in &files {
            read(file, words);
        }
    };
    for directory in DIRECTORIES {
        let mut files = root.list(directory);
        files.retain(|name| opensm::is_conf(name));
        let path = |name: &String| format!("{directory}/{name}");
        read_all(files.iter().map(path).collect(), opensm_words);
    }
    read_all(SYSCONFIG.map(str::to_owned).into(), opensm_variable);
    read_all(vec![OPENIB_CONF.to_owned()], openib_variable);
    read_all(vec![LIMITS.to_owned()], limit_words);
    read_all(root.files(DROP_INS, ".conf"), limit_words);
    read_all(nm::infiniband_files(root), profile_words);
    read_all(vec!["/etc/exports".to_owned()], export_words);
    read_all(root.files(EXPORTS, ".exports"), export_words);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspelled_words_of_each_file_are_found() {
        for (line, words, expected) in [
            ("sm_prority 15", opensm_words as Words, &["sm_priority"][..]),
            ("GUID=\"0x1\"", opensm_variable, &["GUIDS"]),
            ("LOAD_EIPIOB=yes # x", openib_variable, &["LOAD_EIPOIB"]),
            (
                "* sfot memlok unlimitted",
                limit_words,
                &["soft", "memlock", "unlimited"],
            ),
            ("* - memlock 65536", limit_words, &[]),
            ("transport-mod=datagram", profile_words, &["transport-mode"]),
            ("transport-mode=conected", profile_words, &["connected"]),
            (
                "/x *(rw,insecrue,anonuid=5) h(sync)",
                export_words,
                &["insecure"],
            ),
            ("/x *(rw,sec=sys:krb5) -sync", export_words, &[]),
        ] {
            let found = misspelled_words(line, words).into_iter();
            let found: Vec<_> = found.map(|(_, known)| known).collect();
            assert_eq!(found, expected, "{line}");
        }
    }
}
