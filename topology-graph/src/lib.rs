//! PCI addresses, the sysfs reader, the PCIe/NUMA distance graph and its formats.
