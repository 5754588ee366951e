// SPDX-FileCopyrightText: The Ullage Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// powerOff ends a node as a power cut does: all its processes die at once, and
// what a real machine keeps in memory is lost.
func (s *State) powerOff(node *Node) error {
	for _, process := range s.Processes {
		if process.Node == node.Name {
			process.Stopped = true
		}
	}
	if err := s.save(); err != nil {
		return err
	}
	if err := killUntilGone(func() []int {
		return append(s.pidsOfNode(node), cgroupPIDs(s.home.nodeCgroup(node.Name))...)
	}); err != nil {
		return err
	}
	if err := removeCgroups(s.home.nodeCgroup(node.Name)); err != nil {
		return err
	}
	return s.forgetMemory(node)
}

// pidsOfNode lists the node's programs and the shims of its pods: the command
// line of each names the node's folder.
func (s *State) pidsOfNode(node *Node) []int {
	folder := []byte(s.home.Node(node.Name) + "/")
	return slices.DeleteFunc(ownedPIDs(s.home), func(pid int) bool {
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		return err != nil || !bytes.Contains(line, folder)
	})
}

// forgetMemory empties the folders of a node that a real machine has in memory.
func (s *State) forgetMemory(node *Node) error {
	dirs := []string{s.home.Node(node.Name, "containerd-state"), s.home.Node(node.Name, "runc")}
	for path, backing := range node.Private {
		if within(path, "/run") {
			dirs = append(dirs, backing)
		}
	}
	var failed []error
	for _, dir := range dirs {
		entries, err := os.ReadDir(dir)
		failed = append(failed, err)
		for _, entry := range entries {
			failed = append(failed, removeTree(filepath.Join(dir, entry.Name())))
		}
	}
	return errors.Join(failed...)
}

// powerOn boots a node that powerOff ended and waits until it is Ready.
func (s *State) powerOn(node *Node) error {
	if s.namespacePID(node) != 0 {
		return fmt.Errorf("%s is not off: use `restart node %s`, or start its kubelet or containerd", node.Name, node.Name)
	}
	if err := s.startContainerd(node); err != nil {
		return err
	}
	containerd, kubelet := s.process("containerd", node.Name), s.process("kubelet", node.Name)
	if err := await(containerd, startLimit, s.working(containerd)); err != nil {
		return err
	}
	if err := s.start(kubelet); err != nil {
		return err
	}
	begin := time.Now()
	if err := await(kubelet, startLimit, s.working(kubelet)); err != nil {
		return err
	}
	api, err := newClient(s.home)
	if err != nil {
		return err
	}
	return await(kubelet, startLimit-time.Since(begin), func() bool {
		ready, err := api.readyNodes()
		return err == nil && ready[node.Name]
	})
}
