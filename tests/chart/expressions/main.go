// Reads PromQL expressions, one JSON string a line, with Prometheus' own parser, and writes
// for each a line: {"metrics": […], "labels": […]}, the metrics that it selects and the labels
// that it groups by or matches.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"sort"

	"github.com/prometheus/prometheus/promql/parser"
)

type uses struct {
	Metrics []string `json:"metrics"`
	Labels  []string `json:"labels"`
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var text string
		if err := json.Unmarshal(lines.Bytes(), &text); err != nil {
			fail(lines.Text(), err)
		}
		expression, err := parser.NewParser(parser.Options{}).ParseExpr(text)
		if err != nil {
			fail(text, err)
		}
		if err := json.NewEncoder(os.Stdout).Encode(of(expression)); err != nil {
			fail(text, err)
		}
	}
	if err := lines.Err(); err != nil {
		fail("", err)
	}
}

func of(expression parser.Expr) uses {
	metrics, labels := map[string]bool{}, map[string]bool{}
	parser.Inspect(expression, func(node parser.Node, _ []parser.Node) error {
		switch node := node.(type) {
		case *parser.VectorSelector:
			for _, matcher := range node.LabelMatchers {
				if matcher.Name == "__name__" {
					metrics[matcher.Value] = true
				} else {
					labels[matcher.Name] = true
				}
			}
		case *parser.AggregateExpr:
			for _, label := range node.Grouping {
				labels[label] = true
			}
		}
		return nil
	})
	return uses{sorted(metrics), sorted(labels)}
}

func sorted(set map[string]bool) []string {
	all := make([]string, 0, len(set))
	for name := range set {
		all = append(all, name)
	}
	sort.Strings(all)
	return all
}

func fail(text string, err error) {
	fmt.Fprintf(os.Stderr, "error: `%s`: %v\n", text, err)
	os.Exit(1)
}
