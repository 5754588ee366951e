// SPDX-FileCopyrightText: The Ullage Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func TestOptions(t *testing.T) {
	options, _, err := parseUp(strings.Fields("--nodes 1 --kwok 3 --kubernetes 1.34 --label a=b --label example.com/c=d --node-label node-1:e=f --private /x/../y --private /y --kwok-resource g/h=2 --kwok-taint k=v:NoSchedule"), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	want := Options{
		Nodes: 1, Kwok: 3, Kubernetes: "1.34", Labels: map[string]string{"a": "b", "example.com/c": "d"},
		NodeLabels: map[string]map[string]string{"node-1": {"e": "f"}}, Private: []string{"/y"},
		KwokResources: map[string]string{"cpu": "64", "memory": "512Gi", "pods": "110", "g/h": "2"}, KwokTaint: "k=v:NoSchedule",
	}
	if !reflect.DeepEqual(options, want) {
		t.Errorf("got %+v; want %+v", options, want)
	}
	// What `up` compares: the options survive the state file.
	raw, err := json.Marshal(options)
	if err != nil {
		t.Fatal(err)
	}
	var read Options
	if err := json.Unmarshal(raw, &read); err != nil || !reflect.DeepEqual(read, options) {
		t.Errorf("read back %+v, %v", read, err)
	}
}

func TestBadOptionsAreRefused(t *testing.T) {
	for arguments, want := range map[string]string{
		"--nodes 10":                        "0 to 9",
		"--nodes -1":                        "0 to 9",
		"--kwok 10000":                      "0 to 9999",
		"--kubernetes 1.2":                  "choose 1.36 or 1.34",
		"--scheduler-qps -1":                "0 or more",
		"--feature-gate a=b":                "no name",
		"--serve-api --x":                   "no name",
		"--label novalue":                   "KEY=VALUE",
		"--node-label a=b":                  "NODE:KEY=VALUE",
		"--node-label node-3:a=b":           "node-1, node-2",
		"--nodes 0 --node-label node-1:a=b": "no node",
		"--private relative":                "absolute",
		"--kwok-taint a=b:Never":            "EFFECT",
		"extra":                             "no argument",
	} {
		if _, _, err := parseUp(strings.Fields(arguments), io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v; want %q", arguments, err, want)
		}
	}
}

func TestPathsThatCannotWorkAreRefused(t *testing.T) {
	for _, test := range []struct{ home, private, want string }{
		{"/var/lib/x", "/var/lib", "hide the state folder"},
		{"/var/lib/x", "/var/lib/kubelet/y", "overlap"},
		{"/var/lib/x", "/run", "overlap"},
		{"/" + strings.Repeat("x", 90), "/y", "shorten LOCALCLUSTER_HOME"},
	} {
		if err := checkPaths(Home(test.home), []string{test.private}); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v: got %v", test, err)
		}
	}
	if err := checkPaths("/var/lib/localcluster", []string{"/run/cdi", "/var/lib/kubelet-other"}); err != nil {
		t.Error(err)
	}
}

func TestLinksInPrivatePathsAreResolved(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(dir, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	got := resolveAll([]string{filepath.Join(dir, "link", "a", "b"), filepath.Join(dir, "a", "b")})
	if want := []string{filepath.Join(dir, "a", "b")}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v; want %v", got, want)
	}
}
