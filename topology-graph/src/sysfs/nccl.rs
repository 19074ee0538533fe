//! The topology file that an image or a hypervisor puts on a node for NCCL.
//!
//! The search order is NCCL's own (`initOnceFunc` in `src/misc/param.cc`, `ncclTopoGetSystem` in
//! `src/graph/topo.cc`): `NCCL_TOPO_FILE` from its environment or from `/etc/nccl.conf`, or else
//! the file of `nvidia-topologyd`.

use super::tree::Tree;
use crate::AnomalyKind;
use crate::snapshot::NcclFile;

pub(super) const CONFIGURATION: &str = "etc/nccl.conf";
pub(super) const KEY: &str = "NCCL_TOPO_FILE";
/// `/var/run` is an absolute link to `/run` everywhere.
const OF_TOPOLOGYD: &str = "run/nvidia-topologyd/virtualTopology.xml";

pub(super) fn file(root: &mut Tree, named: Option<&str>) -> Option<NcclFile> {
    let Some(named) = named.map(str::to_owned).or_else(|| configured(&root.text(CONFIGURATION)?))
    else {
        return read(root, OF_TOPOLOGYD);
    };
    let path = named.trim_start_matches('/');
    let file = read(root, path);
    if file.is_none() {
        root.note(AnomalyKind::Unreadable, path, format!("{KEY} names it, but it does not exist"));
    }
    file
}

fn read(root: &mut Tree, path: &str) -> Option<NcclFile> {
    let text = root.document(path)?;
    Some(NcclFile { path: path.to_owned(), text })
}

/// The value in a line `KEY=value`; the last line counts, and `#` starts a comment.
fn configured(text: &str) -> Option<String> {
    let mut values = text.lines().filter_map(|line| {
        let (key, value) = line.split('#').next()?.split_once('=')?;
        (key.trim() == KEY).then(|| value.trim().to_owned())
    });
    values.rfind(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_names_a_file() {
        for (text, expected) in [
            ("NCCL_DEBUG=INFO\nNCCL_TOPO_FILE = /opt/a.xml # ours\n", Some("/opt/a.xml")),
            ("NCCL_TOPO_FILE=/a\nNCCL_TOPO_FILE=/b", Some("/b")),
            ("#NCCL_TOPO_FILE=/a", None),
            ("NCCL_TOPO_FILE=", None),
            ("", None),
        ] {
            assert_eq!(configured(text).as_deref(), expected, "{text}");
        }
    }
}
