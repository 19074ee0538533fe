// Kubernetes' own device allocator as a filter: it reads cases of the conformance format, one JSON
// object per line, and writes the allocator's results, one JSON object per line.
//
// The format is described in dra-allocator/tests/vectors/SOURCE.md. Fields of a case that hold
// results are ignored. With -repeat each case is run that many times, and all different results are
// written, since the stable variant takes pools and slices in random order. With -bench the result
// contains the time of the fastest of that many runs, in nanoseconds. Each run has a new allocator
// and expressions that are already compiled, as in the scheduler.
//
// With -patterns and -expressions it handles other cases: regular expressions as Go matches them,
// and selectors as the scheduler evaluates them. These commands regenerate the results of those in
// dra-allocator/tests/cel:
//
//	oracle -patterns < patterns.jsonl
//	oracle -expressions < expressions.jsonl
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"reflect"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
	"k8s.io/utils/ptr"
)

type testCase struct {
	Channel            string
	Features           []string
	Node               *v1.Node
	Slices             []*resourceapi.ResourceSlice
	TaintRules         []json.RawMessage
	Classes            []*resourceapi.DeviceClass
	Claims             []*resourceapi.ResourceClaim
	AllocatedDevices   []string
	AllocatedShared    []string
	AggregatedCapacity map[string]map[resourceapi.QualifiedName]resource.Quantity
}

type answer struct {
	Results        []resourceapi.AllocationResult `json:"results"`
	Error          string                         `json:"error"`
	NumAllocateOne int64                          `json:"numAllocateOne"`
}

type output struct {
	answer
	Others []answer `json:"others,omitempty"`
	Nanos  int64    `json:"nanos,omitempty"`
}

type classLister map[string]*resourceapi.DeviceClass

func (l classLister) List() ([]*resourceapi.DeviceClass, error) {
	classes := make([]*resourceapi.DeviceClass, 0, len(l))
	for _, class := range l {
		classes = append(classes, class)
	}
	return classes, nil
}

func (l classLister) Get(name string) (*resourceapi.DeviceClass, error) {
	if class, ok := l[name]; ok {
		return class, nil
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "deviceclasses"}, name)
}

// The feature of the allocator behind each gate. Not every version has all of them.
var featureOf = map[string]string{
	"DRAAdminAccess":             "AdminAccess",
	"DRAConsumableCapacity":      "ConsumableCapacity",
	"DRADerivedAttributes":       "DerivedAttributes",
	"DRADeviceBindingConditions": "DeviceBindingAndStatus",
	"DRADeviceBindingConditions+DRAResourceClaimDeviceStatus": "DeviceBindingAndStatus",
	"DRADeviceCompatibilityGroups":                            "CompatibilityGroups",
	"DRADeviceTaints":                                         "DeviceTaints",
	"DRAFractionalCapacityRange":                              "FractionalCapacityRange",
	"DRAListTypeAttributes":                                   "ListTypeAttributes",
	"DRAOptionalNodeOperations":                               "OptionalNodeOperations",
	"DRAPartitionableDevices":                                 "PartitionableDevices",
	"DRAPrioritizedList":                                      "PrioritizedList",
}

func features(names []string) (structured.Features, error) {
	var f structured.Features
	for _, name := range names {
		// On by default. It has an effect only if it is off and the gate that needs it is on.
		if name == "DRAResourceClaimDeviceStatus" {
			continue
		}
		feature, ok := featureOf[name]
		if !ok {
			return f, fmt.Errorf("unknown feature: %s", name)
		}
		if field := reflect.ValueOf(&f).Elem().FieldByName(feature); field.IsValid() {
			field.SetBool(true)
		}
	}
	return f, nil
}

func deviceID(text string) (structured.DeviceID, error) {
	driver, rest, ok := strings.Cut(text, "/")
	i := strings.LastIndex(rest, "/")
	if !ok || i < 0 {
		return structured.DeviceID{}, fmt.Errorf("%q does not name a device", text)
	}
	return structured.MakeDeviceID(driver, rest[:i], rest[i+1:]), nil
}

func allocatedState(c *testCase) (structured.AllocatedState, error) {
	state := structured.AllocatedState{
		AllocatedDevices:         sets.New[structured.DeviceID](),
		AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity:       structured.NewConsumedCapacityCollection(),
	}
	for _, text := range c.AllocatedDevices {
		id, err := deviceID(text)
		if err != nil {
			return state, err
		}
		state.AllocatedDevices.Insert(id)
	}
	for _, text := range c.AllocatedShared {
		i := strings.LastIndex(text, "/")
		if i < 0 {
			return state, fmt.Errorf("%q does not name a share", text)
		}
		id, err := deviceID(text[:i])
		if err != nil {
			return state, err
		}
		share := types.UID(text[i+1:])
		state.AllocatedSharedDeviceIDs.Insert(structured.MakeSharedDeviceID(id, &share))
	}
	for text, capacity := range c.AggregatedCapacity {
		id, err := deviceID(text)
		if err != nil {
			return state, err
		}
		state.AggregatedCapacity.Insert(structured.NewDeviceConsumedCapacity(id, capacity))
	}
	return state, nil
}

// Expressions stay compiled as long as the gates of the environment are the same. The process has
// one compiler, so that changing the gates takes time.
var caches = map[cel.Features]*cel.Cache{}

func cache(f structured.Features) *cel.Cache {
	key := cel.Features{EnableConsumableCapacity: f.ConsumableCapacity, EnableListTypeAttributes: f.ListTypeAttributes}
	if caches[key] == nil {
		caches[key] = cel.NewCache(1000, key)
	}
	return caches[key]
}

type prepared struct {
	testCase
	features structured.Features
	state    structured.AllocatedState
	classes  classLister
}

func prepare(line []byte) (*prepared, error) {
	p := &prepared{classes: classLister{}}
	err := json.Unmarshal(line, &p.testCase)
	if err != nil {
		return nil, err
	}
	if p.features, err = features(p.Features); err != nil {
		return nil, err
	}
	if p.state, err = allocatedState(&p.testCase); err != nil {
		return nil, err
	}
	for _, class := range p.Classes {
		p.classes[class.Name] = class
	}
	if p.Slices, err = patched(p.Slices, p.TaintRules); err != nil {
		return nil, err
	}
	return p, nil
}

func (p *prepared) allocate() (answer, time.Duration, error) {
	celCache := cache(p.features)
	start := time.Now()
	allocator, err := structured.NewAllocator(context.Background(), p.features, p.state, p.classes, p.Slices, celCache)
	if err != nil {
		return answer{}, 0, err
	}
	results, err := allocator.Allocate(context.Background(), p.Node, p.Claims)
	took := time.Since(start)
	a := answer{Results: results, NumAllocateOne: steps(allocator)}
	if err != nil {
		a.Error = err.Error()
	}
	for i := range a.Results {
		for j := range a.Results[i].Devices.Results {
			if result := &a.Results[i].Devices.Results[j]; result.ShareID != nil {
				result.ShareID = ptr.To(types.UID("SHARE"))
			}
		}
	}
	return a, took, nil
}

// Every variant has the method, but its type is internal.
func steps(allocator structured.Allocator) int64 {
	method := reflect.ValueOf(allocator).MethodByName("GetStats")
	if !method.IsValid() {
		return -1
	}
	return method.Call(nil)[0].FieldByName("NumAllocateOneInvocations").Int()
}

func run(line []byte, repeat, bench int) (*output, error) {
	p, err := prepare(line)
	if err != nil {
		return nil, err
	}
	if p.Channel != "" {
		structured.EnableAllocators(p.Channel)
	}
	out := &output{}
	for i := range max(repeat, bench, 1) {
		a, took, err := p.allocate()
		if err != nil {
			return nil, err
		}
		switch {
		case i == 0:
			out.answer = a
		case bench == 0 && !known(out, a):
			out.Others = append(out.Others, a)
		}
		// The first run compiles.
		if bench > 0 && i > 0 && (out.Nanos == 0 || took.Nanoseconds() < out.Nanos) {
			out.Nanos = took.Nanoseconds()
		}
	}
	return out, nil
}

func known(out *output, a answer) bool {
	if reflect.DeepEqual(out.answer, a) {
		return true
	}
	for _, other := range out.Others {
		if reflect.DeepEqual(other, a) {
			return true
		}
	}
	return false
}

// filter processes the input line by line.
func filter(in io.Reader, out io.Writer, answer func(line []byte) (any, error)) error {
	reader, writer := bufio.NewReaderSize(in, 1<<20), bufio.NewWriter(out)
	defer writer.Flush()
	encoder := json.NewEncoder(writer)
	encoder.SetEscapeHTML(false)
	for number := 1; ; number++ {
		line, err := reader.ReadBytes('\n')
		if len(line) > 1 {
			answer, err := answer(line)
			if err != nil {
				return fmt.Errorf("line %d: %w", number, err)
			}
			if err := encoder.Encode(answer); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// each processes cases of a type that contain their results.
func each[C any](answer func(c *C)) func(line []byte) (any, error) {
	return func(line []byte) (any, error) {
		var c C
		if err := json.Unmarshal(line, &c); err != nil {
			return nil, err
		}
		answer(&c)
		return c, nil
	}
}

func main() {
	repeat := flag.Int("repeat", 1, "run each case this many times and write all different results")
	bench := flag.Int("bench", 0, "measure the fastest of this many runs")
	patterns := flag.Bool("patterns", false, "process cases of dra-allocator/tests/cel/patterns.jsonl")
	expressions := flag.Bool("expressions", false, "process cases of dra-allocator/tests/cel/expressions.jsonl")
	flag.Parse()
	answer := func(line []byte) (any, error) { return run(line, *repeat, *bench) }
	switch {
	case *patterns:
		answer = each(findPatterns)
	case *expressions:
		answer = each(evaluateExpression)
	}
	if err := filter(os.Stdin, os.Stdout, answer); err != nil {
		fmt.Fprintln(os.Stderr, "oracle:", err)
		os.Exit(1)
	}
}
