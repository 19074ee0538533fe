// A minimal DRA driver for GPUs, based on Kubernetes' own library for kubelet
// plugins. It replaces vendors' drivers in the tests, where these cannot run.
//
// usage: gpu-driver KUBECONFIG NODE DRIVER DEVICES CDI-DIR KUBELET-DIR
//
// DEVICES is a JSON list of the slice's devices. A container that gets the
// device `gpu-0` gets the variable GPU_0=gpu-0.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"
)

type driver struct{ name string }

func (d driver) PrepareResourceClaims(_ context.Context, claims []*resourceapi.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
	results := map[types.UID]kubeletplugin.PrepareResult{}
	for _, claim := range claims {
		var result kubeletplugin.PrepareResult
		for _, device := range claim.Status.Allocation.Devices.Results {
			if device.Driver != d.name {
				continue
			}
			result.Devices = append(result.Devices, kubeletplugin.Device{
				Requests:     []string{device.Request},
				PoolName:     device.Pool,
				DeviceName:   device.Device,
				CDIDeviceIDs: []string{d.name + "/gpu=" + device.Device},
			})
		}
		results[claim.UID] = result
	}
	return results, nil
}

func (driver) UnprepareResourceClaims(_ context.Context, claims []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	results := map[types.UID]error{}
	for _, claim := range claims {
		results[claim.UID] = nil
	}
	return results, nil
}

func (driver) HandleError(_ context.Context, err error, message string) {
	fmt.Fprintln(os.Stderr, message, err)
}

func (driver) WatchHealthStatus(context.Context, chan<- kubeletplugin.DeviceHealthReport) error {
	return kubeletplugin.ErrHealthNotSupported
}

// Writes the variables of all devices to one file that the container runtime reads.
func writeCDI(name, dir string, devices []resourceapi.Device) error {
	type edits struct {
		Env []string `json:"env"`
	}
	type device struct {
		Name           string `json:"name"`
		ContainerEdits edits  `json:"containerEdits"`
	}
	spec := struct {
		CDIVersion string   `json:"cdiVersion"`
		Kind       string   `json:"kind"`
		Devices    []device `json:"devices"`
	}{"0.6.0", name + "/gpu", nil}
	for _, one := range devices {
		variable := strings.ToUpper(strings.ReplaceAll(one.Name, "-", "_"))
		spec.Devices = append(spec.Devices, device{one.Name, edits{[]string{variable + "=" + one.Name}}})
	}
	text, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, name+".json"), text, 0o644)
}

func run(ctx context.Context, kubeconfig, node, name, file, cdi, kubelet string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var devices []resourceapi.Device
	if err := json.Unmarshal(text, &devices); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if err := writeCDI(name, cdi, devices); err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	data := filepath.Join(kubelet, "plugins", name)
	if err := os.MkdirAll(data, 0o750); err != nil {
		return err
	}
	helper, err := kubeletplugin.Start(ctx, driver{name},
		kubeletplugin.KubeClient(client), kubeletplugin.NodeName(node), kubeletplugin.DriverName(name),
		kubeletplugin.RegistrarDirectoryPath(filepath.Join(kubelet, "plugins_registry")),
		kubeletplugin.PluginDataDirectoryPath(data))
	if err != nil {
		return err
	}
	slices := []resourceslice.Slice{{Devices: devices}}
	resources := resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{node: {Slices: slices}}}
	if err := helper.PublishResources(ctx, resources); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

func main() {
	if len(os.Args) != 7 {
		fmt.Fprintln(os.Stderr, "usage: gpu-driver KUBECONFIG NODE DRIVER DEVICES CDI-DIR KUBELET-DIR")
		os.Exit(2)
	}
	a := os.Args[1:]
	if err := run(context.Background(), a[0], a[1], a[2], a[3], a[4], a[5]); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}
