// SPDX-FileCopyrightText: The Ullage Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
)

// resolveAll replaces links in the parts of the paths that exist, so that one
// folder has one name (/var/run is /run on many systems).
func resolveAll(paths []string) []string {
	var resolved []string
	for _, path := range paths {
		suffix := ""
		for dir := path; ; dir = filepath.Dir(dir) {
			if real, err := filepath.EvalSymlinks(dir); err == nil {
				resolved = append(resolved, filepath.Join(real, suffix))
				break
			}
			suffix = filepath.Join(filepath.Base(dir), suffix)
		}
	}
	slices.Sort(resolved)
	return slices.Compact(resolved)
}

// settlePrevious deals with a cluster that was started before: true if it is
// the wanted one and works; an error if it is in the way. What a killed command
// or a crash left is removed; the folder stays, because it carries our lock.
func settlePrevious(home Home, options Options, binaries map[string]string) (bool, error) {
	previous, err := loadState(home)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		left, err := hasLeftovers(home)
		if err != nil || !left {
			return false, err
		}
		previous = unknownState(home)
	case err != nil:
		return false, err
	case previous.Ready && previous.sameBoot() && slices.ContainsFunc(previous.Processes, (*Process).alive):
		return previous.isWanted(options, binaries)
	}
	progress("found what an earlier run left behind: removing it")
	if err := previous.undo(); err != nil {
		return false, fmt.Errorf("remove what an earlier run left behind: %w", err)
	}
	return false, emptyHome(home, false)
}

// isWanted says whether a running cluster is the one that is asked for; an
// error if it has to go first.
func (s *State) isWanted(options Options, binaries map[string]string) (bool, error) {
	if !reflect.DeepEqual(s.Options, options) || !maps.Equal(s.Binaries, binaries) {
		return false, fmt.Errorf("a cluster with other options or versions is up at %s (%s): run `localcluster down` first", s.home, s.describe())
	}
	if broken := s.broken(); len(broken) > 0 {
		return false, fmt.Errorf("the cluster at %s is not healthy (%s): run `localcluster down`, then `up`", s.home, strings.Join(broken, "; "))
	}
	progress("already up: %s", s.describe())
	return true, nil
}

// hasLeftovers says whether a cluster without a state file left processes or
// files; the logs that `down --keep-logs` kept are none.
func hasLeftovers(home Home) (bool, error) {
	entries, err := os.ReadDir(string(home))
	return len(ownedPIDs(home)) > 0 || slices.ContainsFunc(entries, func(entry fs.DirEntry) bool {
		return entry.Name() != marker && home.Path(entry.Name()) != home.Logs()
	}), err
}

// refuseSecond says no to a second cluster with nodes in one network namespace:
// the addresses of nodes are fixed.
func refuseSecond(home Home, options Options) error {
	if options.Nodes == 0 {
		return nil
	}
	for _, other := range neighbours(home) {
		if other.sameNetwork {
			return fmt.Errorf("another cluster with nodes is up on this machine: run `LOCALCLUSTER_HOME=%s localcluster down` first, or start one with --nodes 0, or one in a network namespace of its own by `unshare --net`", other.home)
		}
	}
	return nil
}

// newState plans a cluster.
func newState(home Home, options Options, binaries map[string]string) (*State, error) {
	endpoint, err := planEndpoint(options.Nodes)
	if err != nil {
		return nil, err
	}
	state := &State{
		BootID: bootID(), Options: options, Binaries: binaries, Endpoint: endpoint,
		Nodes: planNodes(home, options), Sysctls: readSysctls(), home: home,
	}
	if options.Nodes > 0 {
		state.inherit(neighbours(home))
	}
	return state, nil
}

// describe says in a few words what the cluster is.
func (s *State) describe() string {
	text := fmt.Sprintf("%d nodes", s.Options.Nodes)
	if s.Options.Kwok > 0 {
		text += fmt.Sprintf(" and %d KWOK nodes", s.Options.Kwok)
	}
	return text + " at " + s.Endpoint.URL()
}
