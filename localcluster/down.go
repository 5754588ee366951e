// SPDX-FileCopyrightText: The Ullage Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"
)

// down removes a cluster and everything that it left on the machine. It works
// from the state on disk if there is one, and from marks on processes,
// addresses and cgroups in any case, so it can be run after every crash and twice.
func down(home Home, keepLogs bool) error {
	lock, err := lockHome(home, "down", false, lockPatience)
	if err == nil {
		defer lock.Close()
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	release, err := lockMachine(os.Geteuid() == 0)
	if err != nil {
		return err
	}
	defer release()
	state, err := loadState(home)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			progress("%v; removing what can be found without it", err)
		}
		state = unknownState(home)
	}
	err = state.undo()
	if err == nil { // else the next `down` needs the state
		err = removeHome(home, keepLogs)
	}
	if err != nil {
		return fmt.Errorf("%w\nrun `localcluster down` again once this is solved", err)
	}
	progress("down: nothing is left")
	return nil
}

// unknownState is the state of a cluster of which only marks on the machine are
// left; root may have started nodes.
func unknownState(home Home) *State {
	state := &State{home: home, BootID: bootID()}
	if os.Geteuid() == 0 {
		state.Options.Nodes = maxNodes
	}
	return state
}

// undo takes back all that `up` and the cluster did outside of the state folder.
// It goes on after errors. What clusters with nodes share, a network or a machine,
// is left alone while another one runs there: it has taken it over. The caller
// holds the lock of the machine.
func (s *State) undo() error {
	withNodes := s.Options.Nodes > 0
	failed := []error{s.killAll(withNodes), unmountBelow(string(s.home))}
	if withNodes {
		failed = append(failed, removeCgroups(s.home.cgroup()))
		others := neighbours(s.home)
		if !slices.ContainsFunc(others, func(other neighbour) bool { return other.sameNetwork }) {
			failed = append(failed, tearDownNetwork(), restoreSysctls(s.Sysctls, true))
		}
		if len(others) == 0 {
			failed = append(failed, restoreSysctls(s.Sysctls, false), removeCreatedDirs(s.CreatedDirs))
		}
	}
	return errors.Join(failed...)
}

// killAll ends every process of the cluster, and of pods if it has nodes.
// Kubelets and containerds go first, so that nothing is started again; nothing
// here is worth a slow goodbye.
func (s *State) killAll(withNodes bool) error {
	var failed []error
	for _, name := range []string{"kubelet", "containerd"} {
		for _, process := range s.Processes {
			if process.Name == name && s.sameBoot() {
				failed = append(failed, process.stop(true, 10*time.Second))
			}
		}
	}
	failed = append(failed, killUntilGone(func() []int {
		left := ownedPIDs(s.home)
		if withNodes {
			left = append(left, cgroupPIDs(s.home.cgroup())...)
		}
		return left
	}))
	return errors.Join(failed...)
}

// killUntilGone kills what a search finds until it finds nothing.
func killUntilGone(search func() []int) error {
	var left []int
	if waitUntil(20*time.Second, func() bool {
		left = search()
		for _, pid := range left {
			_ = syscall.Kill(pid, syscall.SIGKILL) // already gone is what is wanted
		}
		return len(left) == 0
	}) {
		return nil
	}
	return fmt.Errorf("processes %v do not end even after SIGKILL", left)
}

// unmountBelow removes mounts in this namespace below a folder, the deepest first.
func unmountBelow(dir string) error {
	points, err := mountsBelow(dir)
	if err != nil {
		return err
	}
	var failed []error
	for _, point := range slices.Backward(points) {
		if err := syscall.Unmount(point, syscall.MNT_DETACH); err != nil {
			failed = append(failed, fmt.Errorf("unmount %s: %w", point, err))
		}
	}
	return errors.Join(failed...)
}

// mountsBelow are the mount points of this namespace at or below a folder.
func mountsBelow(dir string) ([]string, error) {
	raw, err := os.ReadFile("/proc/self/mountinfo")
	return mountPoints(string(raw), dir), err
}

// mountPoints reads the mount points at or below a folder out of mountinfo, in
// the order in which they were mounted.
func mountPoints(mountinfo, dir string) []string {
	var found []string
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	for line := range strings.Lines(mountinfo) {
		fields := strings.Fields(line)
		if len(fields) < 5 {
			continue
		}
		if point := unescape.Replace(fields[4]); within(point, dir) {
			found = append(found, point)
		}
	}
	return found
}

// removeHome deletes the state folder, or all of it but the logs.
func removeHome(home Home, keepLogs bool) error {
	if !isOurs(home) {
		return nil // nothing there, or not made by localcluster
	}
	if err := emptyHome(home, keepLogs); err != nil {
		return err
	}
	if keepLogs {
		progress("kept the logs in %s", home.Logs())
		return nil
	}
	// Last: a folder without the mark belongs to others.
	if err := os.Remove(home.Path(marker)); err != nil {
		return err
	}
	return os.Remove(string(home))
}

// emptyHome deletes what is in the state folder, but neither its mark nor the
// folder, which carries the lock. The state goes last: a command that is killed
// here leaves what the next one needs.
func emptyHome(home Home, keepLogs bool) error {
	entries, err := os.ReadDir(string(home))
	if err != nil {
		return err
	}
	var failed []error
	for _, entry := range entries {
		path := home.Path(entry.Name())
		if entry.Name() != marker && path != home.state() && !(keepLogs && path == home.Logs()) {
			failed = append(failed, removeTree(path))
		}
	}
	if err := errors.Join(failed...); err != nil {
		return err
	}
	return removeTree(home.state())
}

// removeTree deletes a folder; it tries again while the kernel still lets go of
// the mounts of processes that were just killed.
func removeTree(path string) error {
	var last error
	waitUntil(5*time.Second, func() bool {
		last = os.RemoveAll(path)
		return last == nil || errors.Is(last, fs.ErrPermission)
	})
	return last
}
