// SPDX-FileCopyrightText: The Ullage Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

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
	if pids := cgroupPIDs(Home(c.home).nodeCgroup("node-2")); len(pids) > 0 {
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
	if err := errors.Join(restoreSysctls(before.Sysctls, true), restoreSysctls(before.Sysctls, false)); err != nil {
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

func TestUpStartsAfterKillsAtAnyMoment(t *testing.T) {
	c := newCluster(t, false)
	flags := []string{"up", "--nodes", "0", "--kwok", "3"}
	c.ok("help") // compiles
	for _, moment := range []time.Duration{20, 60, 150, 400, 1000, 2000, 3500, 5000} {
		c.killed(moment*time.Millisecond, flags...)
	}
	c.ok(flags...)
	c.assertEachRunsOnce()
	c.killAll()
	second := c.command(flags...)
	if err := second.Start(); err != nil {
		t.Fatal(err)
	}
	c.ok(flags...) // at once: one starts it, the other finds it up
	if err := second.Wait(); err != nil {
		t.Errorf("one of two: %v", err)
	}
	c.assertEachRunsOnce()
}

func TestUpWithNodesStartsAfterKills(t *testing.T) {
	c := newCluster(t, true)
	c.ok("down")
	before := observe(t)
	flags := []string{"up", "--private", "/run/localcluster-test"}
	for _, moment := range []time.Duration{300, 1500, 4000} {
		c.killed(moment*time.Millisecond, flags...)
	}
	c.ok(flags...)
	c.ok("load-image", c.buildProbe())
	c.apply(pod("server", "node-1", "serve"))
	c.running("server")
	c.killAll()
	c.ok(flags...)
	c.assertEachRunsOnce()
	c.ok("down")
	c.assertClean(before)
}

// killed calls localcluster and kills it by SIGKILL after a while.
func (c *cluster) killed(after time.Duration, arguments ...string) {
	c.Helper()
	command := c.command(arguments...)
	if err := command.Start(); err != nil {
		c.Fatal(err)
	}
	time.Sleep(after)
	_ = command.Process.Kill() // it may have ended
	_ = command.Wait()
}

// killAll kills every process that the cluster has recorded.
func (c *cluster) killAll() {
	c.Helper()
	for _, process := range c.status().Processes {
		if err := syscall.Kill(process.PID, syscall.SIGKILL); err != nil {
			c.Fatal(err)
		}
	}
}

// assertEachRunsOnce checks that the cluster is healthy and no process of an earlier start is left.
func (c *cluster) assertEachRunsOnce() {
	c.Helper()
	status := c.status()
	if status.State != "running" {
		c.Errorf("the cluster is %s: %v", status.State, status.Problems)
	}
	for _, pid := range ownedPIDs(Home(c.home)) {
		if !slices.ContainsFunc(status.Processes, func(process ProcessStatus) bool { return process.PID == pid }) {
			line, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
			c.Errorf("process %d of an earlier start is left: %q", pid, line)
		}
	}
}

func TestSecondClusterWithNodesIsRefusedAndOneWithoutIsNot(t *testing.T) {
	c, second := newCluster(t, true), newCluster(t, false)
	c.ok("up", "--nodes", "1")
	if message := second.refused("up", "--nodes", "1"); !strings.Contains(message, c.home) {
		t.Errorf("the second cluster with nodes: %q; want the folder of the first", message)
	}
	second.ok("up", "--nodes", "0")
	second.ok("down")
	if status := c.status(); status.State != "running" {
		t.Errorf("the first cluster after the second: %s %v", status.State, status.Problems)
	}
}

func TestClustersOfTwoNetworksLiveSideBySide(t *testing.T) {
	first := newCluster(t, true)
	first.ok("down")
	before := observe(t)
	second := &cluster{T: t, home: first.home + "-2", network: programIn(t, ownNetwork()).PID}
	t.Cleanup(func() {
		if out, err := second.command("down").CombinedOutput(); err != nil {
			t.Errorf("down: %v\n%s", err, out)
		}
	})
	probe := first.buildProbe()
	for _, c := range []*cluster{first, second} {
		c.ok("up", "--nodes", "1", "--private", "/run/localcluster-test")
		c.ok("load-image", probe)
		c.apply(pod("server", "node-1", "serve"), object{
			"apiVersion": "v1", "kind": "Service", "metadata": object{"name": "web"},
			"spec": object{"selector": map[string]string{"app": "server"}, "ports": []object{{"port": 80, "targetPort": 8080}}},
		})
	}
	for _, c := range []*cluster{first, second} {
		c.running("server")
		address := c.ok("kubectl", "get", "service", "web", "-o", "jsonpath={.spec.clusterIP}")
		c.eventually("its network reaches the Service", func() bool {
			get := c.inNetwork(filepath.Join(filepath.Dir(probe), "probe"), "get", "http://"+address+"/")
			output, err := get.Output()
			return err == nil && strings.HasPrefix(string(output), "200 server sees ")
		})
		c.ok("kubectl", "exec", "server", "--", "/probe", "get", "https://kubernetes.default.svc/version")
	}
	first.ok("down")
	if status := second.status(); status.State != "running" {
		t.Errorf("the second cluster after the first: %s %v", status.State, status.Problems)
	}
	second.apply(pod("late", "node-1", "serve"))
	second.running("late")
	second.ok("down")
	first.assertClean(before)
	second.assertClean(before)
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
