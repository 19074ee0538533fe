package main

import (
	"context"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/utils/ptr"
)

// A selector, and its result for a device whose only attribute is its name.
type expressionCase struct {
	Expression string `json:"expression"`
	// The compile error or the runtime error on the device; empty if there is none.
	CompileError string `json:"compileError,omitempty"`
	RuntimeError string `json:"runtimeError,omitempty"`
	Matches      bool   `json:"matches"`
}

// evaluateExpression compiles and runs a selector as the scheduler does.
func evaluateExpression(c *expressionCase) {
	c.CompileError, c.RuntimeError, c.Matches = "", "", false
	compiled := cel.GetCompiler(cel.Features{}).CompileCELExpression(c.Expression, cel.Options{})
	if compiled.Error != nil {
		c.CompileError = compiled.Error.Error()
		return
	}
	matches, _, err := compiled.DeviceMatches(context.Background(), cel.Device{
		Driver: "gpu.example.com",
		Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
			"name": {StringValue: ptr.To("gpu-3")},
		},
	})
	if err != nil {
		c.RuntimeError = err.Error()
	}
	c.Matches = matches
}
