//! The pages about what checks find.

/// What is not on another page.
pub(super) const PAGE: &str = "docs/operate/troubleshooting.md";
pub(super) const LINKS: &str = "docs/operate/nic-down.md";
pub(super) const FABRICS: &str = "docs/concepts/fabrics.md";
pub(super) const DIRECT: &str = "docs/guides/nccl-ucx.md";
pub(super) const MODULES: &str = "docs/guides/modules.md";
pub(super) const DRIVERS: &str = "docs/reference/drivers.md";
pub(super) const PLUGINS: &str = "docs/operate/device-plugins.md";
