// SPDX-FileCopyrightText: The Ullage Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"time"
)

// State is what one cluster is made of. It is written before each change of
// the machine, so that `down` can undo everything after any crash.
type State struct {
	Ready       bool              `json:"ready"`
	BootID      string            `json:"boot_id"`
	Options     Options           `json:"options"`
	Binaries    map[string]string `json:"binaries"`
	Endpoint    Endpoint          `json:"endpoint"`
	Processes   []*Process        `json:"processes"`
	Nodes       []*Node           `json:"nodes"`
	CreatedDirs []string          `json:"created_dirs"`
	Sysctls     map[string]string `json:"sysctls"`

	home Home
}

// Endpoint says where the control plane listens.
type Endpoint struct {
	Address string         `json:"address"`
	Ports   map[string]int `json:"ports"`
}

// URL is the address of the API server.
func (e Endpoint) URL() string {
	return fmt.Sprintf("https://%s:%d", e.Address, e.Ports["apiserver"])
}

// loadState reads the state of the cluster at home; fs.ErrNotExist without one.
func loadState(home Home) (*State, error) {
	raw, err := os.ReadFile(home.state())
	if err != nil {
		return nil, err
	}
	state := &State{home: home}
	if err := json.Unmarshal(raw, state); err != nil {
		return nil, fmt.Errorf("%s is damaged (run `localcluster down`): %w", home.state(), err)
	}
	return state, nil
}

// save replaces the state file in one step.
func (s *State) save() error {
	return writeJSON(s.home.state(), s)
}

// writeJSON replaces a file in one step; only its owner can read it.
func writeJSON(path string, value any) error {
	raw, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err
	}
	return writeFile(path, append(raw, '\n'), 0o600)
}

// writeFile replaces a file in one step.
func writeFile(path string, content []byte, mode fs.FileMode) error {
	temporary := path + ".new"
	if err := os.WriteFile(temporary, content, mode); err != nil {
		return err
	}
	return os.Rename(temporary, path)
}

// process finds one process; node is empty for those that belong to none.
func (s *State) process(name, node string) *Process {
	for _, process := range s.Processes {
		if process.Name == name && process.Node == node {
			return process
		}
	}
	return nil
}

// node finds a node by name.
func (s *State) node(name string) *Node {
	for _, node := range s.Nodes {
		if node.Name == name {
			return node
		}
	}
	return nil
}

// sameBoot says whether the machine has not been rebooted since `up`.
func (s *State) sameBoot() bool { return s.BootID == bootID() }

// bootID identifies this boot of the machine; process ids mean nothing after it.
func bootID() string {
	raw, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(raw))
}

// lockPatience is how long a command waits for another one that changes the same cluster.
const lockPatience = 2 * time.Minute

// lockHome takes the lock of the state folder, which ends with this process,
// and creates the folder if asked to. While another command holds the lock,
// this one waits and says for whom. The lock is on the folder itself: `down`
// leaves no lock file.
func lockHome(home Home, command string, create bool, patience time.Duration) (*os.File, error) {
	deadline, told := time.Now().Add(patience), false
	for {
		dir, err := openHome(home, create)
		if err != nil {
			return nil, err
		}
		err = syscall.Flock(int(dir.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil && isCurrent(dir, home) {
			if err := claimHome(home, command, create); err != nil {
				dir.Close()
				return nil, err
			}
			return dir, nil
		}
		dir.Close()
		switch {
		case err == nil: // a `down` removed the folder between open and lock
			continue
		case !errors.Is(err, syscall.EWOULDBLOCK):
			return nil, err
		case time.Now().After(deadline):
			return nil, fmt.Errorf("%s is changing %s: wait until it ends, or end it", holder(home), home)
		case !told:
			progress("waiting for %s, which is changing %s", holder(home), home)
			told = true
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// openHome opens the state folder; it creates it if asked to.
func openHome(home Home, create bool) (*os.File, error) {
	for {
		if create {
			err := os.MkdirAll(string(home), 0o755)
			if _, there := os.Lstat(string(home)); errors.Is(err, fs.ErrExist) && there != nil {
				continue // another `up` made it and a `down` removed it in between
			}
			if err != nil {
				return nil, err
			}
		}
		dir, err := os.Open(string(home))
		if !create || !errors.Is(err, fs.ErrNotExist) {
			return dir, err
		} // a `down` removed it in between
	}
}

// isCurrent says whether an open folder is the one that has the path now.
func isCurrent(dir *os.File, home Home) bool {
	held, heldErr := dir.Stat()
	current, currentErr := os.Stat(string(home))
	return heldErr == nil && currentErr == nil && os.SameFile(held, current)
}

// claimHome marks a locked folder as ours, with who holds it. It refuses to
// create a cluster in a folder that holds something else, and leaves such a
// folder alone otherwise.
func claimHome(home Home, command string, create bool) error {
	if !isOurs(home) {
		if !create {
			return nil
		}
		entries, err := os.ReadDir(string(home))
		if err != nil {
			return err
		}
		if len(entries) > 0 {
			return fmt.Errorf("%s is not empty and not a localcluster folder: set LOCALCLUSTER_HOME to another one", home)
		}
	}
	return os.WriteFile(home.Path(marker), fmt.Appendf(nil, "`localcluster %s` (pid %d)", command, os.Getpid()), 0o600)
}

// holder names the command that holds the lock of the state folder.
func holder(home Home) string {
	if raw, err := os.ReadFile(home.Path(marker)); err == nil && len(raw) > 0 {
		return string(raw)
	}
	return "another localcluster command"
}

// isOurs says whether the folder carries our mark.
func isOurs(home Home) bool {
	_, err := os.Stat(home.Path(marker))
	return err == nil
}
