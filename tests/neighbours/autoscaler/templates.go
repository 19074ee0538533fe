// A part of Cluster Autoscaler's program: its provider `kwok`, which also knows what new nodes publish. The variable
// RESOURCE_SLICES_FILE_PATH names a JSON file: for each node group, the ResourceSlices of `kubectl dranet machines`.
package main

import (
	"encoding/json"
	"os"

	apiv1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/autoscaler/cluster-autoscaler/cloudprovider"
	"k8s.io/autoscaler/cluster-autoscaler/cloudprovider/builder"
	"k8s.io/autoscaler/cluster-autoscaler/cloudprovider/kwok"
	coreoptions "k8s.io/autoscaler/cluster-autoscaler/core/options"
	"k8s.io/autoscaler/cluster-autoscaler/simulator/framework"
	"k8s.io/client-go/informers"
	"k8s.io/klog/v2"
)

func init() {
	builder.RegisterCloudProvider("kwok-with-slices", withTemplates)
}

func withTemplates(
	options *coreoptions.AutoscalerOptions, discovery cloudprovider.NodeGroupDiscoveryOptions,
	limiter *cloudprovider.ResourceLimiter, factory informers.SharedInformerFactory,
) cloudprovider.CloudProvider {
	inner := kwok.BuildKwok(options, discovery, limiter, factory)
	path := os.Getenv("RESOURCE_SLICES_FILE_PATH")
	slices := map[string][]*resourceapi.ResourceSlice{}
	content, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(content, &slices)
	}
	if err != nil {
		klog.Fatalf("the slices of node groups, %s: %v", path, err)
	}
	return provider{inner, slices}
}

type provider struct {
	cloudprovider.CloudProvider
	slices map[string][]*resourceapi.ResourceSlice
}

func (p provider) NodeGroups() []cloudprovider.NodeGroup {
	groups := p.CloudProvider.NodeGroups()
	for index := range groups {
		groups[index] = p.withSlices(groups[index])
	}
	return groups
}

func (p provider) NodeGroupForNode(node *apiv1.Node) (cloudprovider.NodeGroup, error) {
	inner, err := p.CloudProvider.NodeGroupForNode(node)
	if inner == nil || err != nil {
		return nil, err
	}
	return p.withSlices(inner), nil
}

func (p provider) withSlices(inner cloudprovider.NodeGroup) cloudprovider.NodeGroup {
	return group{inner, p.slices[inner.Id()]}
}

type group struct {
	cloudprovider.NodeGroup
	slices []*resourceapi.ResourceSlice
}

func (g group) TemplateNodeInfo() (*framework.NodeInfo, error) {
	info, err := g.NodeGroup.TemplateNodeInfo()
	if err != nil {
		return nil, err
	}
	return framework.NewNodeInfo(info.Node(), g.slices, info.Pods()...), nil
}
