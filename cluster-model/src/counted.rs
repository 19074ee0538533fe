//! The extended resource by which the GPUs of claims are counted: nodes have as many of it as GPUs, and a pod
//! requests as many as its claim takes. Quotas, queues and autoscalers that do not read claims count it.

use crate::gpu_drivers::{self, GpuDriver};
use std::str::FromStr;

/// The resource that counts the GPUs of one class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counted {
    /// The DeviceClass of a driver's whole GPUs, `gpu.nvidia.com`.
    pub class: String,
    /// The extended resource, `example.org/gpus`.
    pub resource: String,
}

/// The flag names a class or a resource that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CountedError {
    /// Not `CLASS=RESOURCE` with a resource of a domain.
    #[error("must be CLASS=RESOURCE, RESOURCE as in example.org/gpus")]
    Malformed,
    /// No driver of whole GPUs has the class.
    #[error("no driver of whole GPUs has the class `{class}`; classes: {known}")]
    UnknownClass {
        /// The class.
        class: String,
        /// Those of known drivers.
        known: String,
    },
    /// The resource is that of a device plugin.
    #[error("{0} stands for GPUs, not for their number; choose a name that no driver uses")]
    Taken(String),
}

impl Counted {
    /// The driver of the counted GPUs.
    ///
    /// # Errors
    /// The class is no driver's, or the resource is that of GPUs themselves.
    pub fn driver(&self) -> Result<&'static GpuDriver, CountedError> {
        let mut plugins = gpu_drivers::all().iter().flat_map(|driver| driver.extended_resources);
        if plugins.any(|name| *name == self.resource) {
            return Err(CountedError::Taken(self.resource.clone()));
        }
        gpu_drivers::all().iter().find(|driver| self.counts(driver)).ok_or_else(|| {
            let known: Vec<_> = gpu_drivers::all().iter().map(|driver| driver.class).collect();
            CountedError::UnknownClass { class: self.class.clone(), known: known.join(", ") }
        })
    }

    /// Whether it counts the GPUs of this driver. Parts of GPUs are not counted.
    pub fn counts(&self, driver: &GpuDriver) -> bool {
        driver.part.is_none() && driver.class == self.class
    }
}

impl FromStr for Counted {
    type Err = CountedError;

    fn from_str(text: &str) -> Result<Self, CountedError> {
        let (class, resource) = text.split_once('=').ok_or(CountedError::Malformed)?;
        let (domain, name) = resource.split_once('/').ok_or(CountedError::Malformed)?;
        // Kubernetes' own domains have no extended resources (`IsExtendedResourceName`).
        let is_own = domain == "kubernetes.io" || domain.ends_with(".kubernetes.io");
        if class.is_empty() || domain.is_empty() || name.is_empty() || is_own {
            return Err(CountedError::Malformed);
        }
        Ok(Self { class: class.to_owned(), resource: resource.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_of_whole_gpus_is_counted_by_a_resource_of_its_own() {
        let read = |text: &str| text.parse::<Counted>();
        for wrong in ["", "gpu.nvidia.com", "=a/b", "c=b", "c=/b", "c=a/", "c=kubernetes.io/b"] {
            assert_eq!(read(wrong), Err(CountedError::Malformed), "{wrong}");
        }
        let driver = |text: &str| read(text).unwrap().driver().map(|driver| driver.driver);
        assert_eq!(driver("gpu.nvidia.com=example.org/gpus"), Ok("gpu.nvidia.com"));
        let error = driver("mig.nvidia.com=example.org/gpus").unwrap_err().to_string();
        assert!(
            error.starts_with("no driver of whole GPUs has the class `mig.nvidia.com`"),
            "{error}"
        );
        let taken = driver("gpu.nvidia.com=nvidia.com/gpu");
        assert_eq!(taken, Err(CountedError::Taken("nvidia.com/gpu".to_owned())));
    }
}
