//! Parses the NFS mounts in `/proc/mounts` and `/etc/fstab`.

/// An NFS mount in `/proc/mounts` or `/etc/fstab`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// The server and the exported directory.
    pub source: String,
    /// The mount point.
    pub target: String,
    /// `true` if the mount uses RDMA.
    pub rdma: bool,
    /// The port of the server, if the options contain it.
    pub port: Option<u16>,
}

/// Returns the NFS mounts in `table`, the text of `/proc/mounts` or `/etc/fstab`.
pub fn mounts(table: &str) -> Vec<Mount> {
    let parse_line = |line: &str| {
        let mut words = line.split_whitespace();
        let (source, target, kind, options) =
            (words.next()?, words.next()?, words.next()?, words.next()?);
        if source.starts_with('#') || !matches!(kind, "nfs" | "nfs4") {
            return None;
        }
        let rdma = options
            .split(',')
            .any(|option| matches!(option, "rdma" | "proto=rdma" | "proto=rdma6"));
        let port = options
            .split(',')
            .find_map(|option| option.strip_prefix("port=")?.parse().ok());
        Some(Mount {
            source: source.to_owned(),
            target: target.to_owned(),
            rdma,
            port,
        })
    };
    table.lines().filter_map(parse_line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rdma_mounts_are_recognized() {
        let table = "10.0.0.1:/a /mnt/a nfs4 rw,vers=4.2,proto=rdma,port=20049,timeo=600 0 0\n10.0.0.1:/b /mnt/b nfs rw,proto=tcp 0 0\n/dev/sda1 / ext4 rw 0 0\n# x:/y /z nfs rdma 0 0\nshort\n";
        let parsed = mounts(table);
        assert_eq!(
            parsed
                .iter()
                .map(|m| (m.target.as_str(), m.rdma, m.port))
                .collect::<Vec<_>>(),
            [("/mnt/a", true, Some(20049)), ("/mnt/b", false, None)]
        );
    }
}
