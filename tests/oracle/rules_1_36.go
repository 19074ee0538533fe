//go:build kubernetes_1_36

package main

import (
	"encoding/json"
	"errors"

	resourceapi "k8s.io/api/resource/v1"
)

// patched is not available: in this version rules are not part of resource.k8s.io/v1.
func patched(slices []*resourceapi.ResourceSlice, rules []json.RawMessage) ([]*resourceapi.ResourceSlice, error) {
	if len(rules) > 0 {
		return nil, errors.New("DeviceTaintRules of resource.k8s.io/v1 exist since 1.37")
	}
	return slices, nil
}
