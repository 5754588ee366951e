// SPDX-FileCopyrightText: The Ullage Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"flag"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// maxNodes is how many node addresses the network plan holds.
const maxNodes = 9

// Options is what `up` was asked for; two clusters with equal options are equal.
type Options struct {
	Nodes         int                          `json:"nodes"`
	Kwok          int                          `json:"kwok"`
	Kubernetes    string                       `json:"kubernetes"`
	Labels        map[string]string            `json:"labels"`
	NodeLabels    map[string]map[string]string `json:"node_labels"`
	Private       []string                     `json:"private"`
	SchedulerQPS  int                          `json:"scheduler_qps"`
	KwokResources map[string]string            `json:"kwok_resources"`
	KwokTaint     string                       `json:"kwok_taint"`
	FeatureGates  []string                     `json:"feature_gates,omitempty"`
	ServedAPIs    []string                     `json:"served_apis,omitempty"`
}

// labelPattern is what a label's key and value may look like, roughly: the API
// server has the last word.
var labelPattern = regexp.MustCompile(`^[A-Za-z0-9][-A-Za-z0-9_./]*=[-A-Za-z0-9_.]*$`)

// taintPattern is KEY=VALUE:EFFECT.
var taintPattern = regexp.MustCompile(`^([-A-Za-z0-9_./]+)=([-A-Za-z0-9_.]*):(NoSchedule|PreferNoSchedule|NoExecute)$`)

// parseUp reads the arguments of `up`.
func parseUp(arguments []string, output io.Writer) (Options, bool, error) {
	options := Options{
		Labels:        map[string]string{},
		NodeLabels:    map[string]map[string]string{},
		KwokResources: map[string]string{"cpu": "64", "memory": "512Gi", "pods": "110"},
	}
	var bare, installDeps bool
	flags := flag.NewFlagSet("up", flag.ContinueOnError)
	flags.SetOutput(output)
	flags.IntVar(&options.Nodes, "nodes", 2, "real nodes: kubelet, containerd and runc each (needs root)")
	flags.IntVar(&options.Kwok, "kwok", 0, "fake nodes of KWOK, named kwok-0000 and on")
	flags.StringVar(&options.Kubernetes, "kubernetes", "", "an older Kubernetes: "+strings.Join(olderKubernetes(), " or "))
	flags.IntVar(&options.SchedulerQPS, "scheduler-qps", 0, "client QPS of kube-scheduler; 0 keeps its default of 50")
	flags.BoolVar(&bare, "bare-control-plane", false, "the same as --nodes 0: needs no root")
	flags.BoolVar(&installDeps, "install-deps", false, "install missing system packages with apt-get (root)")
	flags.StringVar(&options.KwokTaint, "kwok-taint", "", "taint `KEY=VALUE:EFFECT` of all KWOK nodes")
	flags.Func("feature-gate", "feature gate `NAME` of control plane to turn on; may be given often", func(name string) error {
		return addWord(&options.FeatureGates, name)
	})
	flags.Func("serve-api", "`GROUP/VERSION` that the API server serves besides; may be given often", func(name string) error {
		return addWord(&options.ServedAPIs, name)
	})
	flags.Func("label", "label `KEY=VALUE` of all nodes; may be given often", func(text string) error {
		return addPair(options.Labels, text)
	})
	flags.Func("node-label", "label `NODE:KEY=VALUE` of one node; may be given often", func(text string) error {
		node, pair, found := strings.Cut(text, ":")
		if !found {
			return fmt.Errorf("%q is not NODE:KEY=VALUE", text)
		}
		if options.NodeLabels[node] == nil {
			options.NodeLabels[node] = map[string]string{}
		}
		return addPair(options.NodeLabels[node], pair)
	})
	flags.Func("kwok-resource", "allocatable `RESOURCE=QUANTITY` of each KWOK node; may be given often", func(text string) error {
		return addPair(options.KwokResources, text)
	})
	flags.Func("private", "host `DIR` of which each node gets its own; may be given often", func(text string) error {
		if !filepath.IsAbs(text) {
			return fmt.Errorf("%q is not an absolute path", text)
		}
		options.Private = append(options.Private, filepath.Clean(text))
		return nil
	})
	if err := flags.Parse(arguments); err != nil {
		return options, false, err
	}
	if flags.NArg() > 0 {
		return options, false, fmt.Errorf("`up` takes no argument %q", flags.Arg(0))
	}
	if bare {
		options.Nodes = 0
	}
	slices.Sort(options.Private)
	options.Private = slices.Compact(options.Private)
	return options, installDeps, options.validate()
}

// wordPattern is what a gate or an API version may look like.
var wordPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9./-]*$`)

// addWord adds a word to a sorted list.
func addWord(words *[]string, word string) error {
	if !wordPattern.MatchString(word) {
		return fmt.Errorf("%q is no name", word)
	}
	*words = slices.Compact(slices.Sorted(slices.Values(append(*words, word))))
	return nil
}

// addPair adds KEY=VALUE to a map.
func addPair(pairs map[string]string, text string) error {
	if !labelPattern.MatchString(text) {
		return fmt.Errorf("%q is not KEY=VALUE", text)
	}
	key, value, _ := strings.Cut(text, "=")
	pairs[key] = value
	return nil
}

// validate refuses what cannot work, with the reason.
func (o Options) validate() error {
	switch {
	case o.Nodes < 0 || o.Nodes > maxNodes:
		return fmt.Errorf("--nodes %d: choose 0 to %d", o.Nodes, maxNodes)
	case o.Kwok < 0 || o.Kwok > 9999:
		return fmt.Errorf("--kwok %d: choose 0 to 9999", o.Kwok)
	case o.Kubernetes != "" && !slices.Contains(olderKubernetes(), o.Kubernetes):
		return fmt.Errorf("--kubernetes %q: choose %s, or leave it out for the newest", o.Kubernetes, strings.Join(olderKubernetes(), " or "))
	case o.SchedulerQPS < 0:
		return fmt.Errorf("--scheduler-qps %d: choose 0 or more", o.SchedulerQPS)
	case o.KwokTaint != "" && !taintPattern.MatchString(o.KwokTaint):
		return fmt.Errorf("--kwok-taint %q is not KEY=VALUE:EFFECT", o.KwokTaint)
	}
	for node := range o.NodeLabels {
		if !slices.Contains(o.nodeNames(), node) {
			return fmt.Errorf("--node-label: no node %q; the nodes are %s", node, strings.Join(o.nodeNames(), ", "))
		}
	}
	return nil
}

// nodeNames are the names of the real nodes.
func (o Options) nodeNames() []string {
	names := make([]string, 0, o.Nodes)
	for index := range o.Nodes {
		names = append(names, "node-"+strconv.Itoa(index+1))
	}
	return names
}
