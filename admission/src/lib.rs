//! The mutating webhook: a pod's annotation becomes a resource claim template.
