//! The files of sysfs that libibverbs reads, in a directory that `SYSFS_PATH` names.
#![allow(unsafe_code, reason = "sets an environment variable")]

use std::ffi::CString;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::OnceLock;

use crate::adapters;
use crate::nic::{Identity, guid_text};
use crate::options::Options;
use zerocopy::IntoBytes;

/// Path of a device that the program opens, before its number.
const DEVICE_PATH: &[u8] = b"/dev/infiniband/uverbs";
/// Path of the connection manager that the program opens.
pub(crate) const CM_PATH: &std::ffi::CStr = c"/dev/infiniband/rdma_cm";
/// Device that is opened instead. libibverbs compares its number with the file `dev`.
pub(crate) const STAND_IN: &std::ffi::CStr = c"/dev/null";
const STAND_IN_NUMBER: &str = "1:3";

/// Paths of sysfs that are redirected, for programs that do not read `SYSFS_PATH`.
const CLASS: &[u8] = b"/sys/class/infiniband";

/// Directory of the files.
static ROOT: OnceLock<PathBuf> = OnceLock::new();

/// Returns the number of the adapter whose device has this path.
pub(crate) fn device_number(path: &[u8]) -> Option<usize> {
    match path.strip_prefix(DEVICE_PATH)? {
        [digit @ b'0'..=b'9'] => Some(usize::from(digit - b'0')),
        _ => None,
    }
}

/// Returns the path that replaces a path of sysfs.
pub(crate) fn redirect(path: &[u8]) -> Option<CString> {
    let root = ROOT.get()?;
    path.strip_prefix(CLASS)?;
    let mut new = root.as_os_str().as_encoded_bytes().to_vec();
    new.extend_from_slice(&path[b"/sys".len()..]);
    CString::new(new).ok()
}

/// Writes the files and sets `SYSFS_PATH`.
///
/// Processes with the same options share the directory.
pub(crate) fn install(options: Options) -> io::Result<()> {
    let user = crate::syscall::user();
    let Identity {
        name, link_layer, ..
    } = adapters::identity(options);
    let mut directory = format!("nic-model-{user}-{name}-{link_layer}");
    if options.adapters > 1 {
        directory = format!("{directory}-{}", options.adapters);
    }
    let root = std::env::temp_dir().join(directory);
    for (path, content) in [
        ("class/infiniband_verbs/abi_version", "6"),
        ("class/misc/rdma_cm/abi_version", "4"),
    ] {
        write(root.join(path), content)?;
    }
    for number in 0..options.adapters {
        for (path, content) in files(adapters::numbered(options, number), number) {
            write(root.join(path), &content)?;
        }
    }
    let root = ROOT.get_or_init(|| root);
    // SAFETY: the model starts before the program has other threads (its constructor), or the
    // caller of `start` promises it.
    unsafe { std::env::set_var("SYSFS_PATH", root) };
    Ok(())
}

/// Returns the files of an adapter.
fn files(identity: Identity, number: usize) -> Vec<(String, String)> {
    let Identity {
        name,
        node_type,
        guid,
        firmware,
        files: driver_files,
        modalias,
        rate,
        link_layer,
        gids,
        ..
    } = identity;
    let guid = guid_text(guid);
    let verbs = format!("class/infiniband_verbs/uverbs{number}");
    let device = format!("class/infiniband/{name}");
    let port = format!("{device}/ports/1");
    let mut files = vec![
        (format!("{verbs}/ibdev"), name.to_owned()),
        (format!("{verbs}/dev"), STAND_IN_NUMBER.to_owned()),
        (format!("{verbs}/abi_version"), "1".to_owned()),
        (format!("{device}/node_type"), node_type.to_owned()),
        (format!("{device}/node_guid"), guid.clone()),
        (format!("{device}/sys_image_guid"), guid),
        (format!("{device}/fw_ver"), firmware.to_owned()),
        (format!("{device}/device/modalias"), modalias.to_owned()),
        (format!("{port}/pkeys/0"), "0xffff".to_owned()),
        (format!("{port}/rate"), rate.to_owned()),
        (format!("{port}/link_layer"), link_layer.to_owned()),
    ];
    for (file, content) in driver_files {
        files.push((format!("{device}/{file}"), (*content).to_owned()));
    }
    for entry in gids {
        let index = entry.gid_index;
        let gid: Vec<String> = entry
            .gid
            .as_bytes()
            .chunks(2)
            .map(|pair| format!("{:02x}{:02x}", pair[0], pair[1]))
            .collect();
        files.push((format!("{port}/gids/{index}"), gid.join(":")));
        if link_layer == "Ethernet" {
            let kind = if entry.gid_type == 2 {
                "RoCE v2"
            } else {
                "IB/RoCE v1"
            };
            files.push((format!("{port}/gid_attrs/types/{index}"), kind.to_owned()));
            files.push((format!("{port}/gid_attrs/ndevs/{index}"), "lo".to_owned()));
        }
    }
    files
}

/// Writes a line to a file, unless it is already there. Other processes may read it meanwhile.
fn write(path: PathBuf, content: &str) -> io::Result<()> {
    let content = format!("{content}\n");
    if fs::read_to_string(&path).is_ok_and(|old| old == content) {
        return Ok(());
    }
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    let temporary = path.with_extension(std::process::id().to_string());
    fs::write(&temporary, content)?;
    fs::rename(temporary, path)
}
