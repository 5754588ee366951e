// SPDX-FileCopyrightText: The Ullage Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// neighbour is another cluster with nodes that runs on this machine.
type neighbour struct {
	home        Home
	sameNetwork bool // in the network namespace of this process
}

// neighbours lists the other clusters with nodes whose processes run.
func neighbours(home Home) []neighbour {
	sameNetwork := map[Home]bool{}
	own := networkOf("self")
	pidsWhere(func(pid int, environment map[string]string) bool {
		if owner := Home(environment[ownerVariable]); environment[nodesVariable] != "" && owner != home {
			sameNetwork[owner] = sameNetwork[owner] || networkOf(strconv.Itoa(pid)) == own
		}
		return false
	})
	var others []neighbour
	for owner, same := range sameNetwork {
		others = append(others, neighbour{owner, same})
	}
	slices.SortFunc(others, func(a, b neighbour) int { return strings.Compare(string(a.home), string(b.home)) })
	return others
}

// networkOf names the network namespace of a process; empty once it has ended.
func networkOf(pid string) string {
	name, err := os.Readlink("/proc/" + pid + "/ns/net")
	if err != nil {
		return ""
	}
	return name
}

// inherit takes over what neighbours have changed on the machine, as it was
// before: the last cluster that goes puts it back.
func (s *State) inherit(others []neighbour) {
	var created []string
	for _, other := range others {
		state, err := loadState(other.home)
		if err != nil {
			continue // damaged: its own `down` cannot know either
		}
		for name, value := range state.Sysctls {
			if other.sameNetwork || !ofNetwork(name) {
				s.Sysctls[name] = value
			}
		}
		created = append(created, state.CreatedDirs...)
	}
	for _, dir := range created {
		if !slices.Contains(s.CreatedDirs, dir) {
			s.CreatedDirs = append(s.CreatedDirs, dir)
		}
	}
}

// machineFolder carries the lock of the machine; no lock file is left.
const machineFolder = "/run"

// lockMachine makes commands that change what clusters with nodes share on this
// machine wait for one another. It is taken after the lock of a state folder,
// and may be released more than once.
func lockMachine(shared bool) (release func(), err error) {
	if !shared {
		return func() {}, nil
	}
	folder, err := os.Open(machineFolder)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(folder.Fd()), syscall.LOCK_EX); err != nil {
		folder.Close()
		return nil, fmt.Errorf("lock %s: %w", machineFolder, err)
	}
	return sync.OnceFunc(func() { folder.Close() }), nil
}
