//! The generated messages and services, one module per package. Nothing here is written
//! by hand; `tests/generated.rs` regenerates it.

#![allow(
    missing_docs,
    missing_debug_implementations,
    unreachable_pub,
    unused_qualifications,
    clippy::all,
    clippy::pedantic,
    clippy::absolute_paths,
    clippy::allow_attributes_without_reason,
    clippy::unwrap_used,
    reason = "generated code"
)]

/// `k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1`.
#[rustfmt::skip]
#[path = "generated/v1beta1.rs"]
pub mod device_plugin_v1beta1;
/// `k8s.io/kubelet/pkg/apis/dra/v1`.
#[rustfmt::skip]
#[path = "generated/k8s.io.kubelet.pkg.apis.dra.v1.rs"]
pub mod dra_v1;
/// `k8s.io/kubelet/pkg/apis/dra-health/v1`.
#[rustfmt::skip]
#[path = "generated/v1.rs"]
pub mod health_v1;
/// `k8s.io/kubelet/pkg/apis/dra-health/v1alpha1`.
#[rustfmt::skip]
#[path = "generated/v1alpha1.rs"]
pub mod health_v1alpha1;
/// `k8s.io/kubelet/pkg/apis/pluginregistration/v1`.
#[rustfmt::skip]
#[path = "generated/pluginregistration.rs"]
pub mod registration_v1;
