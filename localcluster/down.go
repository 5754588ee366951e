// SPDX-FileCopyrightText: The Ullage Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// down removes a cluster and everything that it left on the machine. It works
// from the state on disk if there is one, and from marks on processes,
// addresses and cgroups in any case, so it can be run after every crash and twice.
func down(home Home, keepLogs bool) error {
	lock, err := lockHome(home, false)
	if err == nil {
		defer lock.Close()
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	state, err := loadState(home)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			progress("%v; removing what can be found without it", err)
		}
		state = &State{home: home, BootID: bootID()}
		if os.Geteuid() == 0 && len(otherNodeClusters(home)) == 0 {
			state.Options.Nodes = maxNodes // unknown: look for the traces of nodes too
		}
	}
	if err := state.destroy(keepLogs); err != nil {
		return fmt.Errorf("%w\nrun `localcluster down` again once this is solved", err)
	}
	progress("down: nothing is left")
	return nil
}

// destroy undoes all that `up` and the cluster did. It goes on after errors
// and keeps the state folder unless all worked.
func (s *State) destroy(keepLogs bool) error {
	failed := []error{s.killAll()}
	if s.Options.Nodes > 0 {
		failed = append(failed, tearDownNetwork(), restoreSysctls(s.Sysctls), removeCgroups(cgroupParent))
	}
	failed = append(failed, unmountBelow(string(s.home)), removeCreatedDirs(s.CreatedDirs))
	if err := errors.Join(failed...); err != nil {
		return err
	}
	return removeHome(s.home, keepLogs)
}

// killAll ends every process of the cluster. Kubelets and containerds go first,
// so that nothing is started again; nothing here is worth a slow goodbye.
func (s *State) killAll() error {
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
		if s.Options.Nodes > 0 {
			left = append(left, cgroupPIDs(cgroupParent)...)
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
	raw, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	var failed []error
	for _, point := range slices.Backward(mountPoints(string(raw), dir)) {
		if err := syscall.Unmount(point, syscall.MNT_DETACH); err != nil {
			failed = append(failed, fmt.Errorf("unmount %s: %w", point, err))
		}
	}
	return errors.Join(failed...)
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
	if !keepLogs {
		return removeTree(string(home))
	}
	entries, err := os.ReadDir(string(home))
	if err != nil {
		return err
	}
	var failed []error
	for _, entry := range entries {
		if path := filepath.Join(string(home), entry.Name()); path != home.Logs() && entry.Name() != marker {
			failed = append(failed, removeTree(path))
		}
	}
	progress("kept the logs in %s", home.Logs())
	return errors.Join(failed...)
}

// removeTree deletes a folder; it tries again while the kernel still lets go of
// the mounts of processes that were just killed.
func removeTree(path string) error {
	var last error
	if waitUntil(5*time.Second, func() bool {
		last = os.RemoveAll(path)
		return last == nil
	}) {
		return nil
	}
	return last
}
