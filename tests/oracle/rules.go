//go:build !kubernetes_1_36

package main

import (
	"context"
	"encoding/json"
	"sort"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/dynamic-resource-allocation/resourceslice/tracker"
)

// patched adds the taints of rules to slices with the tracker that kube-scheduler uses.
func patched(slices []*resourceapi.ResourceSlice, rules []json.RawMessage) ([]*resourceapi.ResourceSlice, error) {
	if len(rules) == 0 {
		return slices, nil
	}
	var objects []runtime.Object
	for _, slice := range slices {
		objects = append(objects, slice)
	}
	for _, text := range rules {
		rule := &resourceapi.DeviceTaintRule{}
		if err := json.Unmarshal(text, rule); err != nil {
			return nil, err
		}
		objects = append(objects, rule)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	factory := informers.NewSharedInformerFactory(fake.NewClientset(objects...), 0)
	followed, err := tracker.StartTracker(ctx, tracker.Options{
		EnableDeviceTaintRules: true,
		SliceInformer:          factory.Resource().V1().ResourceSlices(),
		TaintInformer:          factory.Resource().V1().DeviceTaintRules(),
	})
	if err != nil {
		return nil, err
	}
	defer followed.Stop()
	factory.Start(ctx.Done())
	synced := func(context.Context) (bool, error) { return followed.HasSynced(), nil }
	if err := wait.PollUntilContextTimeout(ctx, time.Millisecond, time.Minute, true, synced); err != nil {
		return nil, err
	}
	all, err := followed.ListPatchedResourceSlices()
	if err != nil {
		return nil, err
	}
	return inOrder(all, slices), nil
}

// inOrder sorts patched slices as the case has them. The tracker lists them in the random order of a
// map, and some results depend on the order.
func inOrder(patched, slices []*resourceapi.ResourceSlice) []*resourceapi.ResourceSlice {
	place := make(map[string]int)
	for at, slice := range slices {
		place[slice.Name] = at
	}
	sort.Slice(patched, func(a, b int) bool { return place[patched[a].Name] < place[patched[b].Name] })
	return patched
}
