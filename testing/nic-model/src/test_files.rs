//! Files that tests read to inspect or change the model. They work in any process that has it.
//!
//! | file | effect |
//! |---|---|
//! | `/dev/infiniband/nic-model/objects` | counts the objects, in the format of `rdma resource show` |
//! | `/dev/infiniband/nic-model/descriptors` | counts the file descriptors that only the model uses |
//! | `/dev/infiniband/nic-model/link-down` | takes the link of the port down |
//! | `/dev/infiniband/nic-model/link-up` | takes it up again |

use crate::model::Model;
use crate::options::MLX5_NAMES;
use crate::uverbs::objects::Kind;

/// Directory of the control files.
const DIRECTORY: &[u8] = b"/dev/infiniband/nic-model/";

/// Returns the name of a control file, or of a file of sysfs with the state of the port.
pub(crate) fn file_name(path: &[u8]) -> Option<&[u8]> {
    if path.starts_with(b"/sys/class/infiniband/") && path.ends_with(b"/ports/1/state") {
        return Some(b"state");
    }
    path.strip_prefix(DIRECTORY)
}

/// Returns the number of the adapter that a path names, from 0.
pub(crate) fn adapter(path: &[u8]) -> usize {
    let is_named = |name: &str| path.windows(name.len()).any(|part| part == name.as_bytes());
    MLX5_NAMES
        .iter()
        .position(|name| is_named(name))
        .unwrap_or(0)
}

/// Reads a control file: returns its content, after its effect. `None` if there is no such file.
///
/// `path` names the adapter of a file of sysfs. The files that change the link apply to the first
/// adapter, the others to all.
pub(crate) fn read(models: &mut [Model], path: &[u8], name: &[u8]) -> Option<String> {
    match name {
        b"objects" => Some(models.iter().map(objects).collect()),
        b"descriptors" => {
            let count: usize = models.iter().map(descriptors).sum();
            Some(format!("{count}\n"))
        }
        b"state" => models
            .get(adapter(path))
            .map(|model| port_state(model).to_owned()),
        b"link-down" => models.first_mut().map(|model| set_link(model, false)),
        b"link-up" => models.first_mut().map(|model| set_link(model, true)),
        _ => None,
    }
}

fn objects(model: &Model) -> String {
    let mut counts = [0_u32; 6];
    for kind in model.objects() {
        let index = match kind {
            Kind::Pd(_) => 0,
            Kind::Cq(_) => 1,
            Kind::Qp { .. } | Kind::OpenedQp(_) => 2,
            Kind::Mr(_) | Kind::Mw(_) => 3,
            Kind::Srq(_) => 5,
            Kind::Ah(_) | Kind::Xrcd(_) | Kind::Dm(_) | Kind::Dmah | Kind::CompCntr(_) => continue,
        };
        counts[index] += 1;
    }
    counts[4] = model.contexts();
    let [pd, cq, qp, mr, ctx, srq] = counts;
    let cm = model.cm.count();
    let device = model.name;
    format!("0: {device}: pd {pd} cq {cq} qp {qp} cm_id {cm} mr {mr} ctx {ctx} srq {srq}\n")
}

/// Counts the file descriptors that a process has only because of the model.
fn descriptors(model: &Model) -> usize {
    let shared = &model.shared;
    shared.channels.descriptors() + shared.network.descriptors() + model.cm.descriptors()
}

fn set_link(model: &mut Model, up: bool) -> String {
    model.set_link(up);
    String::new()
}

/// Returns the state of the port as sysfs shows it.
fn port_state(model: &Model) -> &'static str {
    if model.shared.network.link_up {
        "4: ACTIVE\n"
    } else {
        "1: DOWN\n"
    }
}
