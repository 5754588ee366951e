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
	"syscall"
	"testing"
	"time"
)

const probeImage = "localcluster.local/probe:1"

// cluster drives the command as a user does.
type cluster struct {
	*testing.T
	home string
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
	home := filepath.Join(t.TempDir(), "home")
	if needsRoot {
		home = "/var/lib/localcluster-test" // short: unix sockets are inside
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
	command := exec.Command("./run", arguments...)
	command.Env = append(os.Environ(), "LOCALCLUSTER_HOME="+c.home)
	return command
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
		Mounts: string(mounts), Cgroups: cgroupDirs(cgroupParent), Sysctls: readSysctls(), Dirs: map[string]bool{},
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

func TestTwoNodesRunPodsThatReachOneAnother(t *testing.T) {
	c := newCluster(t, true)
	c.ok("down") // of an interrupted run
	before := observe(t)
	flags := []string{"up", "--private", "/run/localcluster-test", "--label", "example.com/all=yes", "--node-label", "node-2:example.com/one=two"}
	c.ok(flags...)
	c.ok(flags...) // again: says so and succeeds
	if message := c.refused("up", "--nodes", "1"); !strings.Contains(message, "localcluster down") {
		t.Errorf("up with other options says %q; want the way out", message)
	}
	c.ok("load-image", c.buildProbe())
	c.apply(
		pod("server", "node-1", "serve"), pod("near", "node-1", "serve"), pod("far", "node-2", "serve"),
		object{
			"apiVersion": "v1", "kind": "Service", "metadata": object{"name": "web"},
			"spec": object{"selector": map[string]string{"app": "server"}, "ports": []object{{"port": 80, "targetPort": 8080}}},
		},
	)
	c.running("server", "near", "far")
	c.checkLabels()
	c.checkNetwork()
	c.checkPrivateDirs()
	c.checkRestarts()
	c.checkPowerCycle()
	c.ok("down")
	c.assertClean(before)
	c.ok("down") // twice
}

// checkLabels looks for the labels of the flags.
func (c *cluster) checkLabels() {
	c.Helper()
	if got := c.ok("kubectl", "get", "nodes", "-l", "example.com/all=yes", "-o", "name"); got != "node/node-1\nnode/node-2\n" {
		c.Errorf("nodes with the common label: %q", got)
	}
	if got := c.ok("kubectl", "get", "nodes", "-l", "example.com/one=two", "-o", "name"); got != "node/node-2\n" {
		c.Errorf("nodes with the label of node-2: %q", got)
	}
}

// checkNetwork reaches a pod from another node, by address and by name, and
// from its own node, the API server from a pod, and a log.
func (c *cluster) checkNetwork() {
	c.Helper()
	address := c.ok("kubectl", "get", "pod", "server", "-o", "jsonpath={.status.podIP}")
	urls := []string{"http://" + address + ":8080/", "http://web/", "http://web.default.svc.cluster.local/"}
	for _, client := range []string{"near", "far", "server"} {
		for _, url := range urls {
			c.eventually(client+" reaches "+url, func() bool {
				output, err := c.command("kubectl", "exec", client, "--", "/probe", "get", url).Output()
				return err == nil && strings.HasPrefix(string(output), "200 server sees ")
			})
		}
	}
	if got := c.ok("kubectl", "exec", "far", "--", "/probe", "get", "https://kubernetes.default.svc/version"); !strings.HasPrefix(got, "200 ") {
		c.Errorf("the API server from a pod: %q", got)
	}
	if got := c.ok("kubectl", "logs", "far"); got != "serving\n" {
		c.Errorf("kubectl logs: %q", got)
	}
}

// checkPrivateDirs writes one host path on two nodes, and reads what a pod
// sees of a file that was put there from outside.
func (c *cluster) checkPrivateDirs() {
	c.Helper()
	c.apply(pod("writer-1", "node-1", "write", "/private/name"), pod("writer-2", "node-2", "write", "/private/name"))
	c.running("writer-1", "writer-2")
	for index, node := range c.status().Nodes {
		file := filepath.Join(node.Private["/run/localcluster-test"], "name")
		want := "writer-" + strconv.Itoa(index+1)
		c.eventually(want+" wrote "+file, func() bool {
			content, err := os.ReadFile(file)
			return err == nil && string(content) == want
		})
		if got := c.ok("enter", node.Name, "cat", "/run/localcluster-test/name"); got != want {
			c.Errorf("the mount namespace of %s shows %q; want %q", node.Name, got, want)
		}
	}
}

// checkRestarts restarts every component; pods keep running.
func (c *cluster) checkRestarts() {
	c.Helper()
	started := `jsonpath={range .items[*]}{.metadata.name}={.status.containerStatuses[0].containerID} {end}`
	before := c.ok("kubectl", "get", "pods", "-o", started)
	for _, component := range [][]string{
		{"etcd"}, {"apiserver"}, {"controller-manager"}, {"scheduler"}, {"proxy"}, {"dns"},
		{"kubelet", "node-1"}, {"containerd", "node-2"},
	} {
		c.ok(append([]string{"restart"}, component...)...)
	}
	c.ok("restart", "--kill", "kubelet", "node-2")
	c.eventually("the cluster is healthy after restarts", func() bool { return c.status().State == "running" })
	if after := c.ok("kubectl", "get", "pods", "-o", started); after != before {
		c.Errorf("containers changed:\n%s\n%s", before, after)
	}
	c.ok("stop", "kubelet", "node-2")
	if status := c.status(); status.State != "degraded" || !slices.Contains(status.Problems, "kubelet of node-2 was stopped") {
		c.Errorf("status after stop: %s %v", status.State, status.Problems)
	}
	c.ok("start", "kubelet", "node-2")
	c.apply(pod("late", "node-2", "serve"))
	c.running("late")
}

// checkPowerCycle turns one node off and on: its pods start again, those of the
// other node do not notice.
func (c *cluster) checkPowerCycle() {
	c.Helper()
	ids := func(node string) string {
		return c.ok("kubectl", "get", "pods", "--field-selector", "spec.nodeName="+node, "--sort-by=.metadata.name", "-o",
			`jsonpath={range .items[*]}{.status.containerStatuses[0].containerID} {end}`)
	}
	other, mine := ids("node-1"), strings.Fields(ids("node-2"))
	c.ok("stop", "node", "node-2")
	if pids := cgroupPIDs(nodeCgroup("node-2")); len(pids) > 0 {
		c.Errorf("processes of a node without power: %v", pids)
	}
	c.ok("start", "node", "node-2")
	c.eventually("the pods of node-2 run in new containers", func() bool {
		now := strings.Fields(ids("node-2"))
		return len(now) == len(mine) && !slices.ContainsFunc(now, func(id string) bool { return slices.Contains(mine, id) })
	})
	c.running("far", "late")
	if now := ids("node-1"); now != other {
		c.Errorf("containers of node-1 changed: %s, then %s", other, now)
	}
	if got := c.ok("kubectl", "exec", "far", "--", "/probe", "get", "http://web/"); !strings.HasPrefix(got, "200 server") {
		c.Errorf("Service after the power cycle: %q", got)
	}
}

func TestDownCleansUpAfterProcessesWereKilled(t *testing.T) {
	c := newCluster(t, true)
	c.ok("down")
	before := observe(t)
	c.ok("up", "--private", "/run/localcluster-test")
	c.ok("load-image", c.buildProbe())
	c.apply(pod("server", "node-1", "serve"))
	c.running("server")
	for _, process := range c.status().Processes {
		if process.Name != "dns" { // one is left alive
			if err := syscall.Kill(process.PID, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := os.WriteFile(filepath.Join(c.home, "state.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	c.refused("status")
	c.ok("down")
	// Without its state `down` cannot know old settings nor the mount points it made.
	if err := restoreSysctls(before.Sysctls); err != nil {
		t.Fatal(err)
	}
	for dir, existed := range before.Dirs {
		if !existed {
			if err := os.Remove(dir); err != nil && !os.IsNotExist(err) {
				t.Errorf("mount point: %v", err)
			}
		}
	}
	c.assertClean(before)
}

func TestControlPlaneWithFakeNodesNeedsNoRoot(t *testing.T) {
	c := newCluster(t, false)
	c.ok("up", "--nodes", "0", "--kwok", "20", "--label", "example.com/all=yes", "--kwok-resource", "example.com/slot=64", "--scheduler-qps", "1000")
	if got := strings.Count(c.ok("kubectl", "get", "nodes", "-l", "example.com/all=yes", "-o", "name"), "\n"); got != 20 {
		t.Errorf("%d nodes with the label; want 20", got)
	}
	c.apply(object{
		"apiVersion": "v1", "kind": "Pod", "metadata": object{"name": "fake"},
		"spec": object{"containers": []object{{
			"name": "main", "image": "none",
			"resources": object{"limits": map[string]string{"example.com/slot": "1"}},
		}}},
	})
	c.running("fake")
	if node := c.ok("kubectl", "get", "pod", "fake", "-o", "jsonpath={.spec.nodeName}"); !strings.HasPrefix(node, "kwok-") {
		t.Errorf("the pod is on %q; want a KWOK node", node)
	}
	c.ok("down")
	if _, err := os.Stat(c.home); !os.IsNotExist(err) {
		t.Errorf("%s is left: %v", c.home, err)
	}
}
