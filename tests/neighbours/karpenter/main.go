// Karpenter with its provider `kwok`, whose instance types have what `kubectl dranet machines` prints of them.
// The variable DYNAMIC_RESOURCES_FILE_PATH names a JSON file: for each instance type, what `-o karpenter` prints.
package main

import (
	"encoding/json"
	"os"
	"unique"

	"github.com/samber/lo"
	resourcev1 "k8s.io/api/resource/v1"
	kwok "sigs.k8s.io/karpenter/kwok/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/cloudprovider/overlay"
	"sigs.k8s.io/karpenter/pkg/controllers"
	"sigs.k8s.io/karpenter/pkg/controllers/node/health"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/operator"
)

// What is printed of an instance type.
type machine struct {
	DynamicResources struct {
		Templates []template `json:"templates"`
	} `json:"dynamicResources"`
}

type template struct {
	Spec struct {
		Driver         string                  `json:"driver"`
		Pool           struct{ Name string }   `json:"pool"`
		Devices        []resourcev1.Device     `json:"devices"`
		SharedCounters []resourcev1.CounterSet `json:"sharedCounters"`
	} `json:"spec"`
}

func (t template) slice() *cloudprovider.ResourceSliceTemplate {
	devices := lo.Map(t.Spec.Devices, func(it resourcev1.Device, _ int) cloudprovider.Device {
		return cloudprovider.Device{
			Name:                     unique.Make(it.Name),
			Attributes:               it.Attributes,
			Capacity:                 it.Capacity,
			AllowMultipleAllocations: lo.FromPtr(it.AllowMultipleAllocations),
			ConsumesCounters:         it.ConsumesCounters,
		}
	})
	return &cloudprovider.ResourceSliceTemplate{
		Driver:         unique.Make(t.Spec.Driver),
		Pool:           cloudprovider.ResourcePool{Name: unique.Make(t.Spec.Pool.Name)},
		Devices:        devices,
		SharedCounters: t.Spec.SharedCounters,
	}
}

func main() {
	ctx, op := operator.NewOperator()
	instanceTypes := lo.Must(kwok.ConstructInstanceTypes(ctx))
	var machines map[string]machine
	lo.Must0(json.Unmarshal(lo.Must(os.ReadFile(os.Getenv("DYNAMIC_RESOURCES_FILE_PATH"))), &machines))
	for _, instanceType := range instanceTypes {
		templates := machines[instanceType.Name].DynamicResources.Templates
		for _, template := range templates {
			slices := &instanceType.DynamicResources.ResourceSliceTemplates
			*slices = append(*slices, template.slice())
		}
	}
	undecorated := kwok.NewCloudProvider(ctx, op.GetClient(), instanceTypes)
	provider := overlay.Decorate(undecorated, op.GetClient(), op.InstanceTypeStore)
	matcher := lo.Must(health.NewRepairPolicyMatcher(ctx, provider))
	cluster := state.NewCluster(op.Clock, op.GetClient(), provider, state.WithRepairPolicyMatcher(matcher))
	op.WithControllers(ctx, controllers.NewControllers(
		ctx, op.Manager, op.Clock, op.GetClient(), op.EventRecorder, provider, undecorated, cluster,
		op.InstanceTypeStore, op.PredictionStore,
	)...).Start(ctx)
}
