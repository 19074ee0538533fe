//! Machines of any size, as text.

use std::fmt::Write;

/// Switches with one GPU and one NIC each, on two NUMA nodes, and other functions.
pub(crate) fn machine_text(switches: usize, others: usize) -> String {
    let mut text = String::new();
    for node in 0..2 {
        let directory = format!("sys/devices/system/node/node{node}");
        let _ = writeln!(text, "[{directory}]\ncpulist = {node}\ndistance = 10 21");
    }
    for switch in 0..switches {
        let node = switch * 2 / switches;
        let mut function = |path: &str, class: &str| {
            let address = path.rsplit('/').next().unwrap_or(path);
            let _ = writeln!(
                text,
                "[sys/devices/{path}]\nclass = {class}\nvendor = 0x10de\ndevice = 0x1\n\
                 numa_node = {node}\nlocal_cpulist = {node}\nmax_link_speed = 32.0 GT/s PCIe\n\
                 max_link_width = 16\n/sys/bus/pci/devices/{address} -> ."
            );
        };
        let root = format!("pci{switch:04x}:00/{switch:04x}:00:01.0");
        let upstream = format!("{root}/{switch:04x}:01:00.0");
        function(&root, "0x060400");
        function(&upstream, "0x060400");
        for (port, class) in [(0, "0x030200"), (1, "0x020700")] {
            let downstream = format!("{upstream}/{switch:04x}:02:0{port}.0");
            function(&downstream, "0x060400");
            function(&format!("{downstream}/{switch:04x}:0{}:00.0", port + 3), class);
        }
    }
    for other in 0..others {
        let (bus, device, function) = (other / 256, other / 8 % 32, other % 8);
        let address = format!("ffff:{bus:02x}:{device:02x}.{function}");
        let _ = writeln!(
            text,
            "[sys/devices/pciffff:00/{address}]\nclass = 0x088000\nvendor = 0x8086\n\
             device = 0x1\nnuma_node = 0\nlocal_cpulist = 0\n/sys/bus/pci/devices/{address} -> ."
        );
    }
    text
}
