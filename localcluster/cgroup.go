// SPDX-FileCopyrightText: The Ullage Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// hierarchy is one mounted cgroup tree.
type hierarchy struct {
	mount       string
	unified     bool
	controllers []string // of a v1 tree
}

// parseHierarchies reads the cgroup mounts out of /proc/self/mounts.
func parseHierarchies(mounts string) []hierarchy {
	var found []hierarchy
	for line := range strings.Lines(mounts) {
		fields := strings.Fields(line)
		if len(fields) < 4 {
			continue
		}
		switch fields[2] {
		case "cgroup2":
			found = append(found, hierarchy{mount: fields[1], unified: true})
		case "cgroup":
			found = append(found, hierarchy{mount: fields[1], controllers: strings.Split(fields[3], ",")})
		}
	}
	return found
}

// hierarchies lists the cgroup trees of this machine.
func hierarchies() ([]hierarchy, error) {
	raw, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return nil, err
	}
	found := parseHierarchies(string(raw))
	if len(found) == 0 {
		return nil, errors.New("no cgroup file system is mounted: kubelets cannot run here (use --nodes 0)")
	}
	return found, nil
}

// cgroup holds the cgroups of all nodes of a cluster, in every hierarchy.
func (h Home) cgroup() string {
	sum := sha256.Sum256([]byte(h))
	return "localcluster-" + hex.EncodeToString(sum[:4])
}

// nodeCgroup is the cgroup root that a node's kubelet gets.
func (h Home) nodeCgroup(node string) string { return "/" + h.cgroup() + "/" + node }

// createNodeCgroup makes the node's cgroup in every hierarchy, ready for kubelet.
func createNodeCgroup(home Home, node string) error {
	trees, err := hierarchies()
	if err != nil {
		return err
	}
	for _, tree := range trees {
		dir := tree.mount
		for _, element := range []string{home.cgroup(), node} {
			parent := dir
			dir = filepath.Join(parent, element)
			if tree.unified {
				enableControllers(parent)
			}
			if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
				return fmt.Errorf("make cgroup: %w", err)
			}
			if slices.Contains(tree.controllers, "cpuset") {
				if err := inheritCpuset(parent, dir); err != nil {
					return err
				}
			}
		}
		if tree.unified {
			enableControllers(dir)
		}
		if tree.unified && len(trees) == 1 {
			if err := checkControllers(dir); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkControllers makes sure that a v2 cgroup got what kubelet cannot do without.
func checkControllers(dir string) error {
	raw, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return err
	}
	for _, needed := range []string{"cpu", "cpuset", "memory", "pids"} {
		if !slices.Contains(strings.Fields(string(raw)), needed) {
			return fmt.Errorf("cgroup controller %s does not reach %s (inside a container, give it a cgroup namespace of its own and move its processes out of the root cgroup)", needed, dir)
		}
	}
	return nil
}

// inheritCpuset gives a v1 cpuset its parent's cores and memory nodes: a new
// one is empty and takes no process. All of them, because kubelet writes every
// core of the machine into its own.
func inheritCpuset(parent, child string) error {
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		value, err := os.ReadFile(filepath.Join(parent, file))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(child, file), bytes.TrimSpace(value), 0o644); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	return nil
}

// enableControllers hands a v2 cgroup's controllers to its children, one by
// one: a controller that the kernel keeps for itself does not block the others,
// and kubelet names any that it misses.
func enableControllers(dir string) {
	raw, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return
	}
	for _, controller := range strings.Fields(string(raw)) {
		_ = os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+controller), 0o644)
	}
}

// cgroupPIDs lists all processes in a cgroup and below it, in every hierarchy.
func cgroupPIDs(cgroup string) []int {
	seen := map[int]bool{}
	for _, dir := range cgroupDirs(cgroup) {
		raw, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		if err != nil {
			continue // removed meanwhile
		}
		for _, field := range strings.Fields(string(raw)) {
			if pid, err := strconv.Atoi(field); err == nil && pid > 0 {
				seen[pid] = true
			}
		}
	}
	return slices.Collect(maps.Keys(seen))
}

// cgroupDirs lists a cgroup and those below it in every hierarchy, children
// before parents.
func cgroupDirs(cgroup string) []string {
	trees, err := hierarchies()
	if err != nil {
		return nil // no cgroups, so none of ours
	}
	var dirs []string
	for _, tree := range trees {
		// Errors are folders that vanish during the walk.
		_ = filepath.WalkDir(filepath.Join(tree.mount, cgroup), func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.IsDir() {
				dirs = append(dirs, path)
			}
			return nil
		})
	}
	slices.Reverse(dirs)
	return dirs
}

// removeCgroups removes a cgroup and those below it everywhere; their processes
// must have been killed.
func removeCgroups(cgroup string) error {
	var last error
	if waitUntil(10*time.Second, func() bool {
		last = nil
		for _, dir := range cgroupDirs(cgroup) {
			if err := syscall.Rmdir(dir); err != nil && !errors.Is(err, syscall.ENOENT) {
				last = fmt.Errorf("remove cgroup %s: %w", dir, err)
			}
		}
		return last == nil
	}) {
		return nil
	}
	return last
}
