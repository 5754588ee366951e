// SPDX-FileCopyrightText: The Ullage Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// component is one Go module under components/ that is compiled into programs.
type component struct {
	name     string   // folder below components/
	module   string   // upstream module that gives the version
	target   string   // what `go build` is given: "." or "tool"
	programs []string // what comes out of it
	cgo      bool
	tags     string
	newerGo  bool                                                        // its go.mod may ask for a newer Go than others need: it comes from the module proxy
	expected time.Duration                                               // cold build on two cores, measured
	stamp    func(required func(module string) string) []string          // linker flags that tell a program its version
	extra    func(component component, source, destination string) error // files besides the programs
}

// components are all that can be built, in the order in which they are.
var components = []component{
	{
		name: "kubernetes", module: "k8s.io/kubernetes", target: ".", programs: []string{"kube"},
		expected: 5 * time.Minute, stamp: kubernetesStamp,
	},
	{
		name: olderPrefix + "1.36", module: "k8s.io/kubernetes", target: ".", programs: []string{"kube"},
		expected: 5 * time.Minute, stamp: kubernetesStamp,
	},
	{
		name: olderPrefix + "1.34", module: "k8s.io/kubernetes", target: ".", programs: []string{"kube"},
		expected: 5 * time.Minute, stamp: kubernetesStamp,
	},
	{
		name: "containerd", module: "github.com/containerd/containerd/v2", target: "tool",
		programs: []string{"containerd", "containerd-shim-runc-v2", "ctr"}, expected: 55 * time.Second,
	},
	{
		name: "runc", module: "github.com/opencontainers/runc", target: "tool", programs: []string{"runc"},
		cgo: true, tags: "seccomp", expected: 10 * time.Second,
	},
	{
		name: "cni", module: "github.com/containernetworking/plugins", target: "tool",
		programs: []string{"host-local", "ptp"}, expected: 5 * time.Second,
	},
	{
		name: "coredns", module: "github.com/coredns/coredns", target: ".", programs: []string{"coredns"},
		expected: 50 * time.Second,
	},
	{
		name: "kwok", module: "sigs.k8s.io/kwok", target: "tool", programs: []string{"kwok"},
		expected: 55 * time.Second, extra: copyStages,
	},
	{
		name: "helm", module: "helm.sh/helm/v3", target: "tool", programs: []string{"helm"},
		expected: 70 * time.Second, stamp: helmStamp,
	},
	{
		name: "karpenter", module: "sigs.k8s.io/karpenter", target: "sigs.k8s.io/karpenter/kwok",
		programs: []string{"karpenter"}, newerGo: true, expected: 110 * time.Second, extra: copyKarpenterCRDs,
	},
	{
		name: "jobset", module: "sigs.k8s.io/jobset", target: "sigs.k8s.io/jobset",
		programs: []string{"jobset"}, expected: 120 * time.Second, extra: manifests(
			"config/components/crd/bases/*.yaml", "config/components/webhook/manifests.yaml"),
	},
	{
		name: "lws", module: "sigs.k8s.io/lws", target: "sigs.k8s.io/lws/cmd",
		programs: []string{"lws"}, expected: 120 * time.Second, extra: manifests(
			"config/crd/bases/*.yaml", "config/webhook/manifests.yaml"),
	},
	{
		name: "kueue", module: "sigs.k8s.io/kueue", target: "sigs.k8s.io/kueue/cmd/kueue",
		programs: []string{"kueue"}, expected: 3 * time.Minute, extra: manifests(
			"config/components/crd/bases/*.yaml", "config/components/webhook/manifests.yaml"),
	},
	{
		name: "trainer", module: "github.com/kubeflow/trainer/v2",
		target:   "github.com/kubeflow/trainer/v2/cmd/trainer-controller-manager",
		programs: []string{"trainer"}, expected: 2 * time.Minute, extra: manifests(
			"manifests/base/crds/trainer.*.yaml", "manifests/base/webhook/manifests.yaml"),
	},
	{
		// without service discoveries and pages for people: it reads static targets and answers queries
		name: "prometheus", module: "github.com/prometheus/prometheus", target: "tool",
		programs: []string{"prometheus", "promtool"}, tags: "remove_all_sd", expected: 2 * time.Minute,
	},
	{
		name: "registry", module: "github.com/distribution/distribution/v3", target: "tool", programs: []string{"registry"},
		expected: 2 * time.Minute,
	},
	{
		name: "krew", module: "sigs.k8s.io/krew", target: "tool", programs: []string{"krew"},
		expected: 25 * time.Second,
	},
	{
		// Katib's suggestion services: one in Go, and the sources of those in Python
		name: "katib", module: "github.com/kubeflow/katib",
		target:   "github.com/kubeflow/katib/cmd/suggestion/goptuna/v1beta1",
		programs: []string{"goptuna"}, expected: 15 * time.Second, extra: copyFiles("katib",
			"pkg/suggestion/v1beta1/internal/*.py", "pkg/suggestion/v1beta1/optuna/*.py",
			"pkg/apis/manager/v1beta1/python/*.py", "pkg/apis/manager/health/python/*.py"),
	},
	toolkit(""), toolkit("-1.19"), toolkit("-1.17"),
	{
		name: "kubeconform", module: "github.com/yannh/kubeconform", target: "tool", programs: []string{"kubeconform"},
		expected: 5 * time.Second,
	},
}

// toolkit is the generator of NVIDIA's container toolkit, which writes CDI specifications, in a version.
func toolkit(version string) component {
	return component{
		name: "nvidia-cdi" + version, module: "github.com/NVIDIA/nvidia-container-toolkit", target: ".",
		programs: []string{"nvidia-cdi"}, cgo: true, expected: 40 * time.Second,
	}
}

// olderPrefix begins the names of the components that are an older Kubernetes.
const olderPrefix = "kubernetes-"

// olderKubernetes are the minor versions that can be asked for.
func olderKubernetes() []string {
	var found []string
	for _, one := range components {
		if version, older := strings.CutPrefix(one.name, olderPrefix); older {
			found = append(found, version)
		}
	}
	return found
}

// clusterComponents names what a cluster needs; kubernetes is a minor version, or empty.
func clusterComponents(nodes, kwok int, kubernetes string) []string {
	names := []string{"kubernetes"}
	if kubernetes != "" {
		names[0] = olderPrefix + kubernetes
	}
	if nodes > 0 {
		names = append(names, "containerd", "runc", "cni", "coredns")
	}
	if kwok > 0 {
		names = append(names, "kwok")
	}
	return names
}

// findComponents returns components in build order, or an error naming the unknown one.
func findComponents(names []string) ([]component, error) {
	wanted := map[string]bool{}
	for _, name := range names {
		wanted[name] = true
	}
	var found []component
	var known []string
	for _, candidate := range components {
		known = append(known, candidate.name)
		if wanted[candidate.name] {
			found = append(found, candidate)
			delete(wanted, candidate.name)
		}
	}
	for name := range wanted {
		return nil, fmt.Errorf("unknown component %q: choose among %s", name, strings.Join(known, ", "))
	}
	return found, nil
}

// kubernetesStamp makes the binaries report the version that they are built from.
func kubernetesStamp(required func(module string) string) []string {
	version := required("k8s.io/kubernetes")
	parts := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3)
	var flags []string
	for _, target := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		flags = append(flags,
			"-X "+target+".gitVersion="+version,
			"-X "+target+".gitMajor="+parts[0],
			"-X "+target+".gitMinor="+parts[1],
			"-X "+target+".gitTreeState=clean")
	}
	return flags
}

// helmStamp makes helm report its version, and makes it render charts for the
// Kubernetes that its client library belongs to, as upstream's Makefile does.
func helmStamp(required func(module string) string) []string {
	minor := strings.Split(required("k8s.io/client-go"), ".")[1]
	flags := []string{"-X helm.sh/helm/v3/internal/version.version=" + required("helm.sh/helm/v3")}
	for _, target := range []string{"helm.sh/helm/v3/pkg/lint/rules", "helm.sh/helm/v3/pkg/chartutil"} {
		flags = append(flags, "-X "+target+".k8sVersionMajor=1", "-X "+target+".k8sVersionMinor="+minor)
	}
	return flags
}

// environ is the environment of `go` for a component.
func (c component) environ() []string {
	environ := append(os.Environ(), "GOWORK=off", "GOFLAGS=", "CGO_ENABLED=0")
	if c.cgo {
		environ = append(environ, "CGO_ENABLED=1")
	}
	if c.newerGo {
		environ = append(environ, "GOTOOLCHAIN=auto")
	}
	return environ
}

// requirements reads the required version of each module from the component's go.mod.
func (c component) requirements(source string) (map[string]string, error) {
	raw, err := os.ReadFile(filepath.Join(source, "components", c.name, "go.mod"))
	if err != nil {
		return nil, err
	}
	found := parseRequirements(string(raw))
	if found[c.module] == "" {
		return nil, fmt.Errorf("components/%s/go.mod requires no %s", c.name, c.module)
	}
	return found, nil
}

// builtName is what `go build` calls the only program: the last element of its package's path, which
// in the root of a module is that of the module's. An older version's module bears the same name.
func (c component) builtName(source string) (string, error) {
	if strings.Contains(c.target, "/") {
		return path.Base(c.target), nil
	}
	raw, err := os.ReadFile(filepath.Join(source, "components", c.name, "go.mod"))
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(raw)) {
		if module, found := strings.CutPrefix(line, "module "); found {
			return path.Base(strings.TrimSpace(module)), nil
		}
	}
	return "", fmt.Errorf("components/%s/go.mod names no module", c.name)
}

// parseRequirements reads the required versions out of a go.mod.
func parseRequirements(gomod string) map[string]string {
	found := map[string]string{}
	for line := range strings.Lines(gomod) {
		fields := strings.Fields(strings.TrimPrefix(strings.TrimSpace(line), "require "))
		if len(fields) >= 2 && strings.HasPrefix(fields[1], "v") {
			found[fields[0]] = fields[1]
		}
	}
	return found
}

// flags are the build flags of a component with these requirements.
func (c component) flags(requirements map[string]string) []string {
	link := []string{"-s", "-w"}
	if c.stamp != nil {
		link = append(link, c.stamp(func(module string) string { return requirements[module] })...)
	}
	flags := []string{"-trimpath", "-buildvcs=false", "-mod=readonly", "-ldflags", strings.Join(link, " ")}
	if c.tags != "" {
		flags = append(flags, "-tags", c.tags)
	}
	return flags
}

// key is a hash of all that decides what a build gives: sources, go.mod,
// go.sum, flags and platform.
func (c component) key(source string) (string, error) {
	requirements, err := c.requirements(source)
	if err != nil {
		return "", err
	}
	hash := sha256.New()
	fmt.Fprintln(hash, runtime.GOOS, runtime.GOARCH, c.cgo, c.target, c.programs, c.flags(requirements))
	files, err := filepath.Glob(filepath.Join(source, "components", c.name, "*"))
	if err != nil {
		return "", err
	}
	for _, path := range files { // Glob sorts
		if err := hashFile(hash, path); err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(hash.Sum(nil))[:16], nil
}

// hashFile adds the name and the content of a file to a hash.
func hashFile(hash io.Writer, path string) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(hash, "%s %d\n%s", filepath.Base(path), len(content), content)
	return err
}

// sortedKeys returns the keys of a map in order.
func sortedKeys(values map[string]string) []string { return slices.Sorted(maps.Keys(values)) }

// builtBefore says whether the cache holds a component.
func builtBefore(name string) bool {
	source, sourceErr := sourceDir()
	cache, cacheErr := cacheDir()
	wanted, err := findComponents([]string{name})
	if errors.Join(sourceErr, cacheErr, err) != nil {
		return false // the build says what is wrong
	}
	key, err := wanted[0].key(source)
	if err != nil {
		return false
	}
	_, err = os.Stat(filepath.Join(cache, name+"-"+key))
	return err == nil
}
