//! Kubernetes' structured-parameters device allocator and CEL device environment, as a pure library.
