//go:build tools

// Package kubernetes pins a supported older control plane. The script build,
// in the folder above, builds the commands named here.
package kubernetes

import (
	_ "k8s.io/kubernetes/cmd/kube-apiserver"
	_ "k8s.io/kubernetes/cmd/kube-controller-manager"
	_ "k8s.io/kubernetes/cmd/kube-scheduler"
)
