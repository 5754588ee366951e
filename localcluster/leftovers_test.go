// SPDX-FileCopyrightText: The Ullage Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// hold takes the lock of a state folder as `up` does, until the test ends.
func hold(t *testing.T, home Home) *os.File {
	t.Helper()
	lock, err := lockHome(home, "up", true, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { lock.Close() })
	return lock
}

// leave writes a state and a file of a process, as a killed run leaves them.
func leave(t *testing.T, home Home, state *State) {
	t.Helper()
	state.home = home
	if err := os.MkdirAll(home.Path("etcd"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(state.save(), os.WriteFile(home.Path("etcd", "db"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
}

// program starts a process with some environment, which is killed when the test ends.
func program(t *testing.T, environment ...string) *Process {
	t.Helper()
	return programIn(t, nil, environment...)
}

// programIn is program with attributes, such as namespaces of its own.
func programIn(t *testing.T, attributes *syscall.SysProcAttr, environment ...string) *Process {
	t.Helper()
	command := exec.Command("sleep", "600")
	command.Env, command.SysProcAttr = environment, attributes
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	go command.Wait() //nolint:errcheck // its end is seen through alive
	process := &Process{Name: "etcd", PID: command.Process.Pid}
	process.StartTick, _ = startTick(process.PID)
	t.Cleanup(func() { _ = process.stop(true, time.Second) })
	return process
}

// assertEmptyAndHeld checks that `up` can go on in the folder and still holds it.
func assertEmptyAndHeld(t *testing.T, home Home) {
	t.Helper()
	if entries, err := os.ReadDir(string(home)); err != nil || len(entries) != 1 || entries[0].Name() != marker {
		t.Errorf("the folder holds %v, %v; want its mark alone", entries, err)
	}
	if err := (&State{home: home}).save(); err != nil {
		t.Error(err)
	}
	if second, err := lockHome(home, "up", true, 0); err == nil {
		second.Close()
		t.Error("a second command got the lock")
	}
}

func TestLeftoversOfADeadClusterGoAndTheLockStays(t *testing.T) {
	home := Home(t.TempDir())
	hold(t, home)
	leave(t, home, &State{Ready: true, BootID: bootID(), Processes: []*Process{{Name: "etcd", PID: 1 << 30}}})
	if running, err := settlePrevious(home, Options{}, nil); running || err != nil {
		t.Fatal(running, err)
	}
	assertEmptyAndHeld(t, home)
}

func TestUnfinishedStartIsRemovedWithItsProcesses(t *testing.T) {
	home := Home(t.TempDir())
	hold(t, home)
	recorded := program(t, ownerVariable+"="+string(home))
	unrecorded := program(t, ownerVariable+"="+string(home)) // `up` was killed before it noted it
	leave(t, home, &State{BootID: bootID(), Options: Options{Kwok: 7}, Processes: []*Process{recorded}})
	if running, err := settlePrevious(home, Options{}, nil); running || err != nil {
		t.Fatal(running, err)
	}
	if recorded.alive() || unrecorded.alive() {
		t.Error("a process of the unfinished start runs")
	}
	assertEmptyAndHeld(t, home)
}

func TestFilesWithoutAStateAreLeftoversAndKeptLogsAreNot(t *testing.T) {
	home := Home(t.TempDir())
	hold(t, home)
	leave(t, home, &State{})
	// root looks for traces of nodes too, of which another cluster's are none
	other := program(t, ownerVariable+"=/other", nodesVariable+"=1")
	if err := os.Remove(home.state()); err != nil {
		t.Fatal(err)
	}
	if running, err := settlePrevious(home, Options{}, nil); running || err != nil {
		t.Fatal(running, err)
	}
	if !other.alive() {
		t.Error("a process of another cluster was killed")
	}
	assertEmptyAndHeld(t, home)
	log := filepath.Join(home.Logs(), "etcd.log")
	if err := errors.Join(os.Remove(home.state()), os.Mkdir(home.Logs(), 0o755), os.WriteFile(log, nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	if running, err := settlePrevious(home, Options{}, nil); running || err != nil {
		t.Fatal(running, err)
	}
	if _, err := os.Stat(log); err != nil {
		t.Error(err)
	}
}

func TestRunningClusterIsNoLeftover(t *testing.T) {
	home := Home(t.TempDir())
	hold(t, home)
	process := program(t, ownerVariable+"="+string(home))
	leave(t, home, &State{Ready: true, BootID: bootID(), Processes: []*Process{process}})
	if _, err := settlePrevious(home, Options{Kwok: 1}, nil); err == nil || !strings.Contains(err.Error(), "other options") {
		t.Errorf("other options: %v", err)
	}
	if _, err := settlePrevious(home, Options{}, nil); err == nil || !strings.Contains(err.Error(), "localcluster down") {
		t.Errorf("a cluster that does not answer: %v", err)
	}
	if !process.alive() {
		t.Error("its process was killed")
	}
}

func TestMachineIsLeftToAnotherClusterWithNodes(t *testing.T) {
	program(t, ownerVariable+"=/other", nodesVariable+"=1")
	dir := filepath.Join(t.TempDir(), "mountpoint")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	state := &State{home: Home(t.TempDir()), BootID: bootID(), Options: Options{Nodes: 1}, CreatedDirs: []string{dir}}
	if err := state.undo(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); err != nil {
		t.Error("a mount point that the other cluster uses is gone")
	}
}

// ownNetwork gives a program a network namespace of its own.
func ownNetwork() *syscall.SysProcAttr {
	flags := uintptr(syscall.CLONE_NEWNET)
	if os.Geteuid() != 0 {
		flags |= syscall.CLONE_NEWUSER
	}
	return &syscall.SysProcAttr{Cloneflags: flags}
}

func TestOneClusterWithNodesIsUpInEachNetworkNamespace(t *testing.T) {
	programIn(t, ownNetwork(), ownerVariable+"=/far", nodesVariable+"=1")
	home := Home(t.TempDir())
	if others := neighbours(home); !slices.Contains(others, neighbour{"/far", false}) {
		t.Errorf("neighbours: %v", others)
	}
	if err := refuseSecond(home, Options{Nodes: 1}); err != nil && strings.Contains(err.Error(), "/far") {
		t.Errorf("beside one in another network namespace: %v", err)
	}
	program(t, ownerVariable+"=/near", nodesVariable+"=1")
	if others := neighbours(home); !slices.Contains(others, neighbour{"/near", true}) {
		t.Errorf("neighbours: %v", others)
	}
	if err := refuseSecond(home, Options{Nodes: 1}); err == nil || strings.Contains(err.Error(), "/far") {
		t.Errorf("beside one in this network namespace: %v", err)
	}
	if err := refuseSecond(home, Options{}); err != nil {
		t.Errorf("without nodes: %v", err)
	}
}

func TestTheLastClusterPutsBackWhatTheFirstHasChanged(t *testing.T) {
	first, second := Home(t.TempDir()), Home(t.TempDir())
	mountpoints := t.TempDir()
	shared, own := filepath.Join(mountpoints, "shared"), filepath.Join(mountpoints, "own")
	leave(t, first, &State{
		Options: Options{Nodes: 1}, CreatedDirs: []string{mountpoints, shared},
		Sysctls: map[string]string{"kernel/panic": "before", "net/ipv4/ip_forward": "of its network"},
	})
	state := &State{
		home: second, CreatedDirs: []string{own},
		Sysctls: map[string]string{"kernel/panic": "changed", "net/ipv4/ip_forward": "0"},
	}
	state.inherit([]neighbour{{first, false}, {"/gone", true}, {first, false}})
	if want := []string{own, mountpoints, shared}; !slices.Equal(state.CreatedDirs, want) {
		t.Errorf("mount points to remove: %v; want %v", state.CreatedDirs, want)
	}
	if want := map[string]string{"kernel/panic": "before", "net/ipv4/ip_forward": "0"}; !maps.Equal(state.Sysctls, want) {
		t.Errorf("settings to restore: %v; want %v", state.Sysctls, want)
	}
	state.inherit([]neighbour{{first, true}})
	if got := state.Sysctls["net/ipv4/ip_forward"]; got != "of its network" {
		t.Errorf("a setting of the shared network: %q", got)
	}
}

func TestMachineIsChangedByOneCommandAtATime(t *testing.T) {
	release, err := lockMachine(true)
	if err != nil {
		t.Fatal(err)
	}
	second := make(chan error)
	go func() {
		release, err := lockMachine(true)
		if err == nil {
			release()
		}
		second <- err
	}()
	alone, err := lockMachine(false) // a cluster without nodes shares nothing
	if err != nil {
		t.Fatal(err)
	}
	alone()
	select {
	case err := <-second:
		t.Fatalf("the second command did not wait: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	release()
	release()
	if err := <-second; err != nil {
		t.Error(err)
	}
}

func TestCgroupsOfClustersAreApart(t *testing.T) {
	if one, other := Home("/a").nodeCgroup("node-1"), Home("/b").nodeCgroup("node-1"); one == other {
		t.Errorf("both have %s", one)
	}
	if one := Home("/a").nodeCgroup("node-1"); !strings.HasPrefix(one, "/localcluster-") || !strings.HasSuffix(one, "/node-1") {
		t.Errorf("got %s", one)
	}
}

func TestRemovalThatStopsLeavesAFolderThatCanBeUsed(t *testing.T) {
	home := Home(t.TempDir())
	lock := hold(t, home)
	leave(t, home, &State{})
	if err := os.Chmod(home.Path("etcd"), 0o500); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() { // in a thread that ends with it, without root's right to remove everything
		runtime.LockOSThread()
		if os.Geteuid() == 0 {
			if err := errors.Join(os.Chmod(filepath.Dir(string(home)), 0o755), os.Chown(string(home), 65534, -1), syscall.Setfsuid(65534)); err != nil {
				ended <- err
				return
			}
		}
		ended <- removeHome(home, false)
	}()
	if err := <-ended; !errors.Is(err, fs.ErrPermission) {
		t.Fatalf("got %v; want a file that cannot be removed", err)
	}
	lock.Close()
	hold(t, home)
	if _, err := loadState(home); err != nil {
		t.Error(err)
	}
	if err := errors.Join(os.Chmod(home.Path("etcd"), 0o700), removeHome(home, false)); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(string(home)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder is left: %v", err)
	}
}
