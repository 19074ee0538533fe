//! The kube-scheduler extender: ranks nodes by what they would give and keep.
