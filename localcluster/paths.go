// SPDX-FileCopyrightText: The Ullage Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
)

// marker names the file that says a folder belongs to localcluster: `down`
// deletes no folder without it.
const marker = ".localcluster"

// Home is the state folder of one cluster. Everything that a cluster writes,
// apart from mount points of its nodes, is inside it.
type Home string

// homeFromEnvironment returns $LOCALCLUSTER_HOME or the default of this user.
func homeFromEnvironment() (Home, error) {
	if dir := os.Getenv("LOCALCLUSTER_HOME"); dir != "" {
		absolute, err := filepath.Abs(dir)
		return Home(absolute), err
	}
	if os.Geteuid() == 0 {
		return "/var/lib/localcluster", nil
	}
	base := os.Getenv("XDG_STATE_HOME")
	if base == "" {
		user, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("set LOCALCLUSTER_HOME: %w", err)
		}
		base = filepath.Join(user, ".local", "state")
	}
	return Home(filepath.Join(base, "localcluster")), nil
}

// Path joins elements below the state folder.
func (h Home) Path(elements ...string) string {
	return filepath.Join(append([]string{string(h)}, elements...)...)
}

// state is the file that says what the cluster is made of.
func (h Home) state() string { return h.Path("state.json") }

// Kubeconfig is the administrator's kubeconfig file.
func (h Home) Kubeconfig() string { return h.Path("kubeconfig") }

// Bin is a folder of links to the programs that this cluster runs.
func (h Home) Bin() string { return h.Path("bin") }

// Logs holds one log file for each process.
func (h Home) Logs() string { return h.Path("logs") }

// Secret joins elements below the folder of keys and tokens.
func (h Home) Secret(elements ...string) string {
	return h.Path(append([]string{"secrets"}, elements...)...)
}

// Node joins elements below the folder of one node.
func (h Home) Node(name string, elements ...string) string {
	return h.Path(append([]string{"nodes", name}, elements...)...)
}

// sourceDir is the folder of this module, where the components' modules are.
func sourceDir() (string, error) {
	dir := os.Getenv("LOCALCLUSTER_SOURCE")
	if dir == "" {
		return "", fmt.Errorf("LOCALCLUSTER_SOURCE is not set: start this command through localcluster/run")
	}
	return dir, nil
}

// cacheDir holds the compiled programs of all clusters of this user.
func cacheDir() (string, error) {
	base := os.Getenv("ULLAGE_CACHE")
	if base == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("set ULLAGE_CACHE: %w", err)
		}
		base = user
	}
	absolute, err := filepath.Abs(base)
	return filepath.Join(absolute, "ullage", "localcluster"), err
}
