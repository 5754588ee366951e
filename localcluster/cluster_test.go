// SPDX-FileCopyrightText: The Ullage Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

const probeImage = "localcluster.local/probe:1"

// cluster drives the command as a user does.
type cluster struct {
	*testing.T
	home    string
	network int // a process in the network namespace of the cluster; 0 for that of this one
}

// newCluster gives a test a state folder of its own. These tests start real
// clusters and change the machine's network, so they run only when asked to.
func newCluster(t *testing.T, needsRoot bool) *cluster {
	t.Helper()
	if os.Getenv("LOCALCLUSTER_TEST") == "" {
		t.Skip("set LOCALCLUSTER_TEST=1 to start real clusters")
	}
	if needsRoot && os.Geteuid() != 0 {
		t.Fatal("real nodes need root")
	}
	base, err := os.MkdirTemp("", "lc-") // short: unix sockets are inside
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(base) })
	home := filepath.Join(base, "home")
	if needsRoot {
		home = "/var/lib/localcluster-test"
	}
	c := &cluster{T: t, home: home}
	t.Cleanup(func() {
		if t.Failed() {
			c.saveLogs()
		}
		if out, err := c.command("down").CombinedOutput(); err != nil {
			t.Errorf("down: %v\n%s", err, out)
		}
	})
	return c
}

// command prepares a call of localcluster.
func (c *cluster) command(arguments ...string) *exec.Cmd {
	command := c.inNetwork(append([]string{"./run"}, arguments...)...)
	command.Env = append(os.Environ(), "LOCALCLUSTER_HOME="+c.home)
	return command
}

// inNetwork prepares a program in the network namespace of the cluster.
func (c *cluster) inNetwork(words ...string) *exec.Cmd {
	if c.network > 0 {
		words = append([]string{"nsenter", fmt.Sprintf("--net=/proc/%d/ns/net", c.network), "--"}, words...)
	}
	return exec.Command(words[0], words[1:]...)
}

// ok calls localcluster, which must succeed, and returns what it printed.
func (c *cluster) ok(arguments ...string) string {
	c.Helper()
	var stdout, stderr bytes.Buffer
	command := c.command(arguments...)
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); err != nil {
		c.Fatalf("localcluster %s: %v\n%s%s", strings.Join(arguments, " "), err, stdout.String(), stderr.String())
	}
	return stdout.String()
}

// refused calls localcluster, which must fail, and returns its message.
func (c *cluster) refused(arguments ...string) string {
	c.Helper()
	output, err := c.command(arguments...).CombinedOutput()
	if err == nil {
		c.Fatalf("localcluster %s succeeded; want an error\n%s", strings.Join(arguments, " "), output)
	}
	return string(output)
}

// eventually repeats a check until it holds.
func (c *cluster) eventually(what string, check func() bool) {
	c.Helper()
	if !waitUntil(90*time.Second, check) {
		pods, _ := c.command("kubectl", "describe", "pods").CombinedOutput()
		c.Fatalf("never happened: %s\n%s", what, pods)
	}
}

// status reads `status --json`.
func (c *cluster) status() Status {
	c.Helper()
	var status Status
	if err := json.Unmarshal([]byte(c.ok("status", "--json")), &status); err != nil {
		c.Fatal(err)
	}
	return status
}

// apply creates objects.
func (c *cluster) apply(objects ...object) {
	c.Helper()
	raw, err := json.Marshal(object{"apiVersion": "v1", "kind": "List", "items": objects})
	if err != nil {
		c.Fatal(err)
	}
	command := c.command("kubectl", "apply", "-f", "-")
	command.Stdin = bytes.NewReader(raw)
	if output, err := command.CombinedOutput(); err != nil {
		c.Fatalf("apply: %v\n%s", err, output)
	}
}

// running waits until pods run.
func (c *cluster) running(pods ...string) {
	c.Helper()
	for _, pod := range pods {
		c.eventually(pod+" runs", func() bool {
			output, err := c.command("kubectl", "get", "pod", pod, "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].status}`).Output()
			return err == nil && string(output) == "True"
		})
	}
}

// pod is a pod of the probe image pinned to a node.
func pod(name, node string, arguments ...string) object {
	return object{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": object{"name": name, "labels": map[string]string{"app": name}},
		"spec": object{
			"nodeName":                      node,
			"terminationGracePeriodSeconds": 0,
			"containers": []object{{
				"name": "probe", "image": probeImage, "imagePullPolicy": "Never", "args": arguments,
				"volumeMounts": []object{{"name": "private", "mountPath": "/private"}},
			}},
			"volumes": []object{{"name": "private", "hostPath": object{"path": "/run/localcluster-test", "type": "Directory"}}},
		},
	}
}

// buildProbe compiles the probe and packs it as an image.
func (c *cluster) buildProbe() string {
	c.Helper()
	dir := c.TempDir()
	build := exec.Command("go", "build", "-trimpath", "-o", filepath.Join(dir, "probe"), "./testdata/probe")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := build.CombinedOutput(); err != nil {
		c.Fatalf("build the probe: %v\n%s", err, output)
	}
	program, err := os.ReadFile(filepath.Join(dir, "probe"))
	if err != nil {
		c.Fatal(err)
	}
	archive := filepath.Join(dir, "probe.tar")
	file, err := os.Create(archive)
	if err != nil {
		c.Fatal(err)
	}
	defer file.Close()
	if err := writeOCIArchive(file, probeImage, []imageFile{{"probe", program, 0o755}}, []string{"/probe"}); err != nil {
		c.Fatal(err)
	}
	return archive
}

// saveLogs keeps the logs of a failed test.
func (c *cluster) saveLogs() {
	destination := filepath.Join(os.TempDir(), "localcluster-failed-"+strconv.Itoa(os.Getpid()))
	if err := os.CopyFS(destination, os.DirFS(filepath.Join(c.home, "logs"))); err == nil {
		c.Logf("the logs of all processes are in %s", destination)
	}
}

// machine is what a cluster could leave behind.
type machine struct {
	Addresses, Links, Routes, Tables, Forward, Mounts string
	Cgroups                                           []string
	Sysctls                                           map[string]string
	Dirs                                              map[string]bool
}

// cgroupTrees lists the cgroups of all clusters in every hierarchy.
func cgroupTrees(t *testing.T) []string {
	t.Helper()
	trees, err := hierarchies()
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, tree := range trees {
		dirs, err := filepath.Glob(filepath.Join(tree.mount, "localcluster*"))
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, dirs...)
	}
	return found
}

// observe takes a picture of the machine.
func observe(t *testing.T) machine {
	t.Helper()
	read := func(name string, arguments ...string) string {
		output, err := exec.Command(name, arguments...).Output()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		return string(output)
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	picture := machine{
		Addresses: read("ip", "-o", "-4", "address", "show", "dev", "lo"), Links: read("ip", "-br", "link"),
		Routes: read("ip", "route", "show", "table", "all"), Tables: read("nft", "list", "tables"),
		Mounts: string(mounts), Cgroups: cgroupTrees(t), Sysctls: readSysctls(), Dirs: map[string]bool{},
	}
	for _, dir := range append(slices.Clone(builtinPrivate), "/run/localcluster-test", "/var/lib/localcluster-test", "/run/netns", "/opt/containerd", "/opt/cni", "/etc/cni") {
		_, err := os.Stat(dir)
		picture.Dirs[dir] = err == nil
	}
	return picture
}

// assertClean compares the machine with the picture before and looks for processes.
func (c *cluster) assertClean(before machine) {
	c.Helper()
	if got, want := fmt.Sprintf("%+v", observe(c.T)), fmt.Sprintf("%+v", before); got != want {
		c.Errorf("the machine has changed\nbefore: %s\nafter:  %s", want, got)
	}
	if pids := ownedPIDs(Home(c.home)); len(pids) > 0 {
		c.Errorf("processes are left: %v", pids)
	}
	if _, err := os.Stat(c.home); err == nil {
		c.Errorf("%s is left", c.home)
	}
}
