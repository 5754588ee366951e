// SPDX-FileCopyrightText: The Ullage Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// holderName is the process that keeps a node's mount namespace.
const holderName = "namespace"

// maxSocketPath is how long the path of a unix socket may be (sun_path less its end).
const maxSocketPath = 107

// builtinPrivate are the host paths that kubelet, containerd and CNI have as
// constants: each node gets its own.
var builtinPrivate = []string{
	"/run/containerd",
	"/var/lib/cni",
	"/var/lib/kubelet",
	"/var/log/containers",
	"/var/log/pods",
}

// Node is one real node.
type Node struct {
	Name    string            `json:"name"`
	Address string            `json:"address"`
	Subnet  string            `json:"pod_subnet"`
	Socket  string            `json:"containerd_socket"`
	Private map[string]string `json:"private"` // host path -> folder that backs it on this node
}

// planNodes names the nodes of a cluster with their addresses and folders.
func planNodes(home Home, options Options) []*Node {
	var nodes []*Node
	for index, name := range options.nodeNames() {
		node := &Node{
			Name:    name,
			Address: nodeAddress(index),
			Subnet:  podSubnet(index),
			Socket:  home.Node(name, "containerd.sock"),
			Private: map[string]string{},
		}
		for _, path := range slices.Concat(builtinPrivate, options.Private) {
			node.Private[path] = home.Node(name, "private", path)
		}
		nodes = append(nodes, node)
	}
	return nodes
}

// checkPaths refuses private folders that would hide the cluster's own state or
// one another, and a state folder that is too long for sockets.
func checkPaths(home Home, private []string) error {
	if longest := len(planNodes(home, Options{Nodes: maxNodes})[maxNodes-1].Socket + ".ttrpc"); longest > maxSocketPath {
		return fmt.Errorf("the state folder %s is too long for unix sockets inside it: shorten LOCALCLUSTER_HOME by %d bytes", home, longest-maxSocketPath)
	}
	all := slices.Concat(builtinPrivate, private)
	for index, path := range all {
		if within(string(home), path) {
			return fmt.Errorf("--private %s would hide the state folder %s: set LOCALCLUSTER_HOME elsewhere", path, home)
		}
		for _, other := range all[:index] {
			if within(path, other) || within(other, path) {
				return fmt.Errorf("private folders %s and %s overlap: name one of them", other, path)
			}
		}
	}
	return nil
}

// within says whether path is dir or below it.
func within(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

// prepareDirs makes mount points on the host and the folders behind them.
// Mount points that were not there are recorded first, so that `down` removes them.
func (s *State) prepareDirs() error {
	for _, node := range s.Nodes {
		if err := mountMemory(s.home.Node(node.Name, "private", "run")); err != nil {
			return err
		}
		for path, backing := range node.Private {
			if err := s.makeHostDir(path); err != nil {
				return err
			}
			if err := os.MkdirAll(backing, 0o755); err != nil {
				return err
			}
		}
		for _, dir := range []string{"cni", "containerd", "containerd-state", "containerd-temp", "opt", "runc", "ipam"} {
			if err := os.MkdirAll(s.home.Node(node.Name, dir), 0o755); err != nil {
				return err
			}
		}
	}
	return nil
}

// mountMemory puts a folder in memory, as /run is on a machine of its own: programs
// rely on it being fast, and empty after a reboot.
func mountMemory(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	mounts, err := mountsBelow(dir)
	if err != nil || slices.Contains(mounts, dir) {
		return err
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "mode=755"); err != nil {
		return fmt.Errorf("mount memory at %s: %w", dir, err)
	}
	return nil
}

// makeHostDir creates a folder of the host with its parents and records which were missing.
func (s *State) makeHostDir(path string) error {
	var missing []string
	for dir := path; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(dir); err == nil {
			break
		} else if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		missing = append(missing, dir)
	}
	if len(missing) == 0 {
		return nil
	}
	slices.Reverse(missing)
	s.CreatedDirs = append(s.CreatedDirs, missing...)
	if err := s.save(); err != nil {
		return err
	}
	return os.MkdirAll(path, 0o755)
}

// removeCreatedDirs removes the mount points that makeHostDir made, if they are empty.
func removeCreatedDirs(dirs []string) error {
	var failed []error
	for _, dir := range slices.Backward(dirs) {
		err := syscall.Rmdir(dir)
		if err != nil && !errors.Is(err, syscall.ENOENT) && !errors.Is(err, syscall.ENOTEMPTY) {
			failed = append(failed, fmt.Errorf("remove %s: %w", dir, err))
		}
	}
	return errors.Join(failed...)
}

// startHolder starts the process that owns the node's mount namespace, with
// the private folders in place.
func (s *State) startHolder(node *Node) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	process := &Process{
		Name: holderName, Node: node.Name,
		Argv: []string{self, "hold-namespace"},
		Log:  s.home.Path("logs", node.Name, holderName+".log"),
	}
	command, err := s.command(process, process.Argv)
	if err != nil {
		return err
	}
	command.SysProcAttr.Unshareflags = syscall.CLONE_NEWNS // Go makes all mounts private in it
	mounts, err := json.Marshal(node.Private)
	if err != nil {
		return err
	}
	process.Argv = append(process.Argv, string(mounts))
	command.Args = process.Argv
	ready, done, err := os.Pipe()
	if err != nil {
		return err
	}
	command.ExtraFiles = []*os.File{done} // its file descriptor 3
	err = command.Start()
	done.Close()
	if err != nil {
		ready.Close()
		return fmt.Errorf("start the mount namespace of %s: %w", node.Name, err)
	}
	if err := s.record(process, command); err != nil {
		return err
	}
	return awaitHolder(ready, process)
}

// awaitHolder waits until the holder says that its mounts are in place.
func awaitHolder(ready io.ReadCloser, process *Process) error {
	defer ready.Close()
	line, err := bufio.NewReader(ready).ReadString('\n')
	if err != nil || line != "ready\n" {
		time.Sleep(100 * time.Millisecond) // let it finish its log
		return fmt.Errorf("the mount namespace of %s failed:\n%s", process.Node, logTail(process.Log, 5))
	}
	return nil
}

// holdNamespace is the body of the holder: it mounts each node-private folder
// over the host's path, says so, and then only waits for a signal.
func holdNamespace(argument string, output io.WriteCloser) error {
	mounts := map[string]string{}
	if err := json.Unmarshal([]byte(argument), &mounts); err != nil {
		return err
	}
	for path, backing := range mounts {
		if err := syscall.Mount(backing, path, "", syscall.MS_BIND|syscall.MS_REC, ""); err != nil {
			return fmt.Errorf("mount %s over %s: %w", backing, path, err)
		}
	}
	// Shared inside this namespace alone: pods may ask for mount propagation.
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_SHARED, ""); err != nil {
		return fmt.Errorf("make mounts shared: %w", err)
	}
	if _, err := fmt.Fprintln(output, "ready"); err != nil {
		return err
	}
	if err := output.Close(); err != nil {
		return err
	}
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM, syscall.SIGINT)
	<-end
	return nil
}

// namespacePID is a process in the node's mount namespace, 0 without one. Any
// process of the node will do if the holder was killed.
func (s *State) namespacePID(node *Node) int {
	for _, name := range []string{holderName, "containerd", "kubelet"} {
		if process := s.process(name, node.Name); process != nil && process.alive() {
			return process.PID
		}
	}
	return 0
}
