// SPDX-FileCopyrightText: The Ullage Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestForeignFolderIsNeitherUsedNorDeleted(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "precious")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := claimHome(Home(dir), "up", true); err == nil {
		t.Error("a folder with other files was taken")
	}
	if err := removeHome(Home(dir), false); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(file); err != nil {
		t.Error(err)
	}
}

func TestSecondCommandWaitsForTheFirstAndNamesIt(t *testing.T) {
	home := Home(filepath.Join(t.TempDir(), "home"))
	first := hold(t, home)
	me := "`localcluster up` (pid " + strconv.Itoa(os.Getpid()) + ")"
	if _, err := lockHome(home, "down", false, 0); err == nil || !strings.Contains(err.Error(), me) {
		t.Errorf("got %v; want %s", err, me)
	}
	time.AfterFunc(100*time.Millisecond, func() { first.Close() })
	second, err := lockHome(home, "down", false, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	second.Close()
}

func TestCommandsThatMakeAndRemoveOneFolderAtOnceNeverFail(t *testing.T) {
	home := Home(filepath.Join(t.TempDir(), "home"))
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range 20 {
				lock, err := lockHome(home, "up", true, time.Minute)
				if err != nil {
					t.Error(err)
					return
				}
				if err := errors.Join((&State{home: home}).save(), removeHome(home, false)); err != nil {
					t.Error(err)
				}
				lock.Close()
			}
		})
	}
	group.Wait()
}

func TestStateSurvivesItsFile(t *testing.T) {
	home := Home(t.TempDir())
	state := &State{home: home, Ready: true, BootID: bootID(), Options: Options{Nodes: 1}, Nodes: planNodes(home, Options{Nodes: 1}), Processes: []*Process{{Name: "etcd", PID: 7, Argv: []string{"a"}}}}
	if err := state.save(); err != nil {
		t.Fatal(err)
	}
	read, err := loadState(home)
	if err != nil || !reflect.DeepEqual(read, state) {
		t.Errorf("got %+v, %v", read, err)
	}
	if !read.sameBoot() || read.process("etcd", "") == nil || read.node("node-1") == nil {
		t.Error("parts of the state are lost")
	}
}

func TestComponentsAreFoundByTheirNames(t *testing.T) {
	state := &State{Processes: []*Process{{Name: "apiserver"}, {Name: "kubelet", Node: "node-1"}, {Name: holderName, Node: "node-1"}}, Options: Options{Nodes: 1}}
	for _, words := range [][]string{{"apiserver"}, {"kube-apiserver"}, {"kubelet", "node-1"}} {
		if _, err := state.findProcess(words); err != nil {
			t.Errorf("%v: %v", words, err)
		}
	}
	for _, words := range [][]string{{}, {"kubelet"}, {"kubelet", "node-9"}, {holderName, "node-1"}, {"a", "b", "c"}} {
		if _, err := state.findProcess(words); err == nil || !strings.Contains(err.Error(), "kubelet node-1") {
			t.Errorf("%v: %v", words, err)
		}
	}
}
