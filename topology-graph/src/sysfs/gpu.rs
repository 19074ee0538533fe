//! GPUs as their drivers report them, without vendor libraries: NVIDIA's
//! `driver/nvidia/gpus/<address>/information` in procfs (`nv_procfs_read_gpu_info` in
//! `open-gpu-kernel-modules`).

use super::tree::Tree;
use crate::AnomalyKind;
use crate::snapshot::GpuFacts;

const VERSION: &str = "driver/nvidia/version";
/// How the open driver names itself in its version.
const OPEN: &str = "Open Kernel Module";
const PEER_MEMORY_MODULE: &str = "module/nvidia_peermem";
const GPUS: &str = "driver/nvidia/gpus";
/// The driver's placeholder for a UUID that it has not read yet.
const UNREAD: char = '?';

pub(super) fn nvidia(proc: &mut Tree) -> Vec<GpuFacts> {
    let names = proc.names(GPUS);
    let mut gpus: Vec<_> = names.iter().filter_map(|name| gpu(proc, name)).collect();
    gpus.sort_by_key(|gpu| gpu.address);
    gpus
}

/// True with the module `nvidia_peermem`, or with the open driver, which exports dma-buf.
pub(super) fn nvidia_peer_memory(sys: &mut Tree, proc: &mut Tree) -> Option<bool> {
    let version = proc.text(VERSION)?;
    let without_module = sys.names(PEER_MEMORY_MODULE).is_empty();
    Some(!without_module || version.contains(OPEN))
}

fn gpu(proc: &mut Tree, name: &str) -> Option<GpuFacts> {
    let Ok(address) = name.parse() else {
        let path = format!("{GPUS}/{name}");
        proc.note(AnomalyKind::Malformed, &path, format!("invalid PCI address `{name}`"));
        return None;
    };
    let text = proc.text(&format!("{GPUS}/{name}/information")).unwrap_or_default();
    let (uuid, model) = (known_field(&text, "GPU UUID"), known_field(&text, "Model"));
    Some(GpuFacts { address, uuid, model, drm_card: None })
}

/// The value in a line, unless the driver has not read it yet.
fn known_field(text: &str, key: &str) -> Option<String> {
    field(text, key).filter(|value| !value.contains(UNREAD)).map(str::to_owned)
}

/// The value in a line `Key: \t value`.
fn field<'t>(text: &'t str, key: &str) -> Option<&'t str> {
    let mut values = text.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
    values.next().map(str::trim).filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_their_key() {
        let text = "Model: \t\t NVIDIA GB300\nIRQ:   \t\t 0\nGPU UUID: \t GPU-1\nVideo BIOS:\n";
        assert_eq!(field(text, "Model"), Some("NVIDIA GB300"));
        assert_eq!(field(text, "GPU UUID"), Some("GPU-1"));
        assert_eq!(field(text, "Video BIOS"), None);
        assert_eq!(field(text, "GPU"), None);
    }
}
