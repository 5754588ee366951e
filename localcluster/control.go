// SPDX-FileCopyrightText: The Ullage Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// stopPatience is how long a process may take to end by itself.
const stopPatience = 15 * time.Second

// aliases lets users name components by their upstream names.
var aliases = map[string]string{
	"kube-apiserver": "apiserver", "kube-controller-manager": "controller-manager",
	"kube-scheduler": "scheduler", "kube-proxy": "proxy", "coredns": "dns",
}

// control returns how to stop and how to start `COMPONENT [NODE]` or `node NODE`.
func (s *State) control(arguments []string, kill bool) (stop, start func() error, err error) {
	if len(arguments) == 2 && arguments[0] == "node" {
		node := s.node(arguments[1])
		if node == nil {
			return nil, nil, fmt.Errorf("no node %q: the nodes are %s", arguments[1], strings.Join(s.Options.nodeNames(), ", "))
		}
		return func() error { return s.powerOff(node) }, func() error { return s.powerOn(node) }, nil
	}
	process, err := s.findProcess(arguments)
	if err != nil {
		return nil, nil, err
	}
	return func() error { return s.stopComponent(process, kill) }, func() error { return s.startComponent(process) }, nil
}

// findProcess resolves `COMPONENT [NODE]`.
func (s *State) findProcess(arguments []string) (*Process, error) {
	if len(arguments) == 0 || len(arguments) > 2 {
		return nil, errors.New("name a component and, for kubelet and containerd, a node: " + s.known())
	}
	name, node := arguments[0], ""
	if alias, found := aliases[name]; found {
		name = alias
	}
	if len(arguments) == 2 {
		node = arguments[1]
	}
	process := s.process(name, node)
	if process == nil || name == holderName {
		return nil, fmt.Errorf("no component %q: choose among %s", strings.Join(arguments, " "), s.known())
	}
	return process, nil
}

// known lists the components that can be stopped and started.
func (s *State) known() string {
	var names []string
	for _, process := range s.Processes {
		if process.Name != holderName {
			names = append(names, strings.TrimSpace(process.Name+" "+process.Node))
		}
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// stopComponent stops one process until `start` or `restart`.
func (s *State) stopComponent(process *Process, kill bool) error {
	if err := process.stop(kill, stopPatience); err != nil {
		return err
	}
	process.Stopped = true
	return s.save()
}

// startComponent starts one process and waits until it works.
func (s *State) startComponent(process *Process) error {
	if process.alive() {
		progress("%s runs already", process.title())
		return nil
	}
	if err := s.start(process); err != nil {
		return err
	}
	return await(process, startLimit, s.working(process))
}

// working returns how to see that a process does its work.
func (s *State) working(process *Process) func() bool {
	switch process.Name {
	case "etcd":
		return func() bool { return httpOK("http://" + s.Endpoint.on("etcd") + "/health") }
	case "scheduler", "controller-manager":
		return func() bool { return httpOK("https://" + s.Endpoint.on(process.Name) + "/healthz") }
	case "apiserver":
		return func() bool {
			api, err := newClient(s.home)
			return err == nil && api.serving()
		}
	case "proxy":
		return func() bool { return httpOK("http://" + s.Endpoint.on("proxy-health") + "/livez") }
	case "dns":
		return func() bool { return httpOK("http://" + dnsAddress + ":8181/ready") }
	case "containerd":
		return func() bool { return s.containerdServing(s.node(process.Node)) }
	case "kubelet":
		return func() bool { return httpOK(kubeletHealth(s.node(process.Node))) }
	default:
		return process.alive
	}
}
