//! `opensm.conf`, its numbered instances, and `/etc/sysconfig/opensm`.

use super::root::{Root, number, unsigned};

/// Where the distributions keep the subnet manager's files: Red Hat's place, then OpenSM's own.
pub const DIRECTORIES: [&str; 2] = ["/etc/rdma", "/etc/opensm"];
/// What the unit reads before it starts opensm: Red Hat's, then Debian's.
pub const SYSCONFIG: [&str; 2] = ["/etc/sysconfig/opensm", "/etc/default/opensm"];

/// An `opensm.conf`: one `key value` a line, `#` for comments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conf {
    /// The file.
    pub path: String,
    /// The number of the instance: none for the base file.
    pub instance: Option<u32>,
    /// Line number, key and value.
    pub entries: Vec<(usize, String, String)>,
    /// Lines that have a key and no value.
    pub bare: Vec<(usize, String)>,
}

impl Conf {
    /// Reads the text of one.
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
            match line.split_once(char::is_whitespace) {
                Some((key, value)) => {
                    conf.entries
                        .push((at + 1, key.to_owned(), unquoted(value).to_owned()));
                }
                None => conf.bare.push((at + 1, line.to_owned())),
            }
        }
        conf
    }

    /// The last value of a key; `(null)` is none, as opensm writes it.
    pub fn get(&self, key: &str) -> Option<&str> {
        let found = self.entries.iter().rev().find(|(_, k, _)| k == key);
        found
            .map(|(_, _, value)| value.as_str())
            .filter(|value| *value != "(null)" && !value.is_empty())
    }

    /// The port that it binds to; 0 lets opensm choose.
    pub fn guid(&self) -> Option<u64> {
        self.get("guid")
            .and_then(unsigned)
            .filter(|guid| *guid != 0)
    }

    /// The priority among subnet managers.
    pub fn priority(&self) -> Option<i64> {
        self.get("sm_priority").and_then(number)
    }
}

/// `/etc/sysconfig/opensm`: shell variables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sysconfig {
    /// The file.
    pub path: String,
    /// `GUIDS`, as words.
    pub guids: Vec<String>,
    /// `PRIORITY`, as it stands there.
    pub priority: Option<String>,
}

impl Sysconfig {
    /// Reads the text of one.
    pub fn parse(path: &str, text: &str) -> Self {
        let mut read = Self {
            path: path.to_owned(),
            ..Self::default()
        };
        for line in text.lines() {
            let line = line.trim();
            let line = line.strip_prefix("export ").unwrap_or(line);
            match line.split_once('=') {
                Some(("GUIDS" | "PORTS", value)) => {
                    read.guids = unquoted(value)
                        .split_whitespace()
                        .map(str::to_owned)
                        .collect();
                }
                Some(("PRIORITY", value)) => {
                    read.priority =
                        Some(unquoted(value).to_owned()).filter(|value| !value.is_empty());
                }
                _ => {}
            }
        }
        // Debian's `PORTS="ALL"`.
        read.guids.retain(|guid| guid != "ALL" && guid != "NONE");
        read
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

/// All that configures opensm on a host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Files {
    /// The base file, then the instances in their order.
    pub confs: Vec<Conf>,
    /// What the unit reads.
    pub sysconfig: Option<Sysconfig>,
    /// What updates left beside edited files.
    pub leftovers: Vec<String>,
}

impl Files {
    /// Finds them all.
    pub fn find(root: &Root) -> Self {
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
                    files.confs.push(Conf {
                        instance,
                        ..Conf::parse(&path, &text)
                    });
                }
            }
        }
        files.sysconfig = SYSCONFIG
            .iter()
            .find_map(|path| root.text(path).map(|text| Sysconfig::parse(path, &text)));
        files
    }

    /// The numbered ones: if there is any, nothing else is read.
    pub fn instances(&self) -> impl Iterator<Item = &Conf> {
        self.confs.iter().filter(|conf| conf.instance.is_some())
    }

    /// Those that opensm is started with: the numbered ones, else the base file.
    pub fn read(&self) -> Vec<&Conf> {
        let numbered: Vec<&Conf> = self.instances().collect();
        if numbered.is_empty() {
            self.base().into_iter().collect()
        } else {
            numbered
        }
    }

    /// The base file.
    pub fn base(&self) -> Option<&Conf> {
        self.confs.iter().find(|conf| conf.instance.is_none())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_is_keys_and_values() {
        let conf = Conf::parse(
            "x",
            "# comment\nguid 0x0002c90300317851\n\nsm_priority 15 # high\nlog_file (null)\nbare\nlog_prefix \"a b\"\n",
        );
        assert_eq!(conf.guid(), Some(0x0002_c903_0031_7851));
        assert_eq!(conf.priority(), Some(15));
        assert_eq!(
            (conf.get("log_file"), conf.get("log_prefix")),
            (None, Some("a b"))
        );
        assert_eq!(conf.bare, [(6, "bare".to_owned())]);
    }

    #[test]
    fn shell_variables_are_read() {
        let read = Sysconfig::parse("x", "#GUIDS=no\nGUIDS=\"0x1 0x2\"\nPRIORITY=15\n");
        assert_eq!(
            (read.guids.len(), read.priority.as_deref()),
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
