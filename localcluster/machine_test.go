// SPDX-FileCopyrightText: The Ullage Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func TestHierarchiesOfHybridAndUnifiedHosts(t *testing.T) {
	hybrid := `tmpfs /sys/fs/cgroup tmpfs rw,relatime,mode=755 0 0
cgroup /sys/fs/cgroup/cpuset cgroup rw,relatime,cpuset 0 0
cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,cpu,cpuacct 0 0
cgroup2 /sys/fs/cgroup/unified cgroup2 rw,relatime 0 0
`
	want := []hierarchy{
		{mount: "/sys/fs/cgroup/cpuset", controllers: []string{"rw", "relatime", "cpuset"}},
		{mount: "/sys/fs/cgroup/cpu,cpuacct", controllers: []string{"rw", "cpu", "cpuacct"}},
		{mount: "/sys/fs/cgroup/unified", unified: true},
	}
	if got := parseHierarchies(hybrid); !reflect.DeepEqual(got, want) {
		t.Errorf("hybrid: %+v", got)
	}
	unified := "cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid,nsdelegate 0 0\n"
	if got := parseHierarchies(unified); !reflect.DeepEqual(got, []hierarchy{{mount: "/sys/fs/cgroup", unified: true}}) {
		t.Errorf("unified: %+v", got)
	}
}

func TestControllersThatDoNotReachANodeAreNamed(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "cgroup.controllers"), []byte("cpu memory pids\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := checkControllers(dir); err == nil || !strings.Contains(err.Error(), "cpuset") {
		t.Errorf("got %v", err)
	}
}

func TestNewCpusetGetsAllCoresOfItsParent(t *testing.T) {
	parent, child := t.TempDir(), t.TempDir()
	for file, value := range map[string]string{"cpuset.cpus": "0-1\n", "cpuset.mems": "0\n"} {
		if err := os.WriteFile(filepath.Join(parent, file), []byte(value), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := inheritCpuset(parent, child); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(child, "cpuset.cpus")); err != nil || string(got) != "0-1" {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestStartTimeOfAProcess(t *testing.T) {
	stat := "42 (a (b) c) S 1 42 42 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 987654 1000 10"
	if tick, running := parseStat(stat); tick != 987654 || !running {
		t.Errorf("got %d, %v", tick, running)
	}
	if _, running := parseStat(strings.Replace(stat, " S ", " Z ", 1)); running {
		t.Error("a zombie counts as running")
	}
	if _, running := parseStat("garbage"); running {
		t.Error("garbage counts as running")
	}
	process := Process{PID: os.Getpid()}
	process.StartTick, _ = startTick(process.PID)
	if !process.alive() {
		t.Error("this process is not alive")
	}
	process.StartTick++
	if process.alive() {
		t.Error("a reused process id counts as alive")
	}
}

func TestSystemTextsAreRead(t *testing.T) {
	routes := "10.244.1.2 dev veth1a scope host \n10.244.2.9 dev veth2b scope host\n10.244.9.0/24 dev eth0\n"
	if got := parsePodLinks(routes); !reflect.DeepEqual(got, []string{"veth1a", "veth2b"}) {
		t.Errorf("links: %v", got)
	}
	mounts := "1 0 8:1 / / rw\n2 1 0:5 / /home/a rw\n3 1 0:5 / /home/a/b\\040c rw\n4 1 0:5 / /home/ab rw\n"
	if got := mountPoints(mounts, "/home/a"); !reflect.DeepEqual(got, []string{"/home/a", "/home/a/b c"}) {
		t.Errorf("mounts: %q", got)
	}
	if got, err := parseCapabilities("CapPrm:\t0\nCapEff:\t000001fffeffffff\n"); err != nil || got&(1<<capSysResource) != 0 || got&1 == 0 {
		t.Errorf("capabilities: %x, %v", got, err)
	}
	gomod := "module x\n\nrequire a/b v1.2.3\n\nrequire (\n\tc.d/e v0.1.0 // indirect\n)\n"
	if got := parseRequirements(gomod); !reflect.DeepEqual(got, map[string]string{"a/b": "v1.2.3", "c.d/e": "v0.1.0"}) {
		t.Errorf("go.mod: %v", got)
	}
}

func TestInstallLineNamesEachPackageOnce(t *testing.T) {
	absent := func() bool { return false }
	lacking := missing([]requirement{{"b", "two", absent}, {"a", "one", absent}, {"c", "two", absent}, {"d", "three", func() bool { return true }}})
	if got, want := installLine(lacking), "apt-get install -y --no-install-recommends one two"; got != want {
		t.Errorf("got %q; want %q", got, want)
	}
	if err := requireTools(lacking, false); err == nil || !strings.Contains(err.Error(), "--install-deps") {
		t.Errorf("got %v", err)
	}
}

func TestAFailedBuildSaysWhy(t *testing.T) {
	failed := exec.Command("false").Run()
	var said strings.Builder
	code := report(fmt.Errorf("building runc failed (%w):\nno headers", failed), &said)
	if code != 1 || !strings.Contains(said.String(), "no headers") {
		t.Errorf("exit code %d, said %q", code, said.String())
	}
}
