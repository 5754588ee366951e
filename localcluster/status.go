// SPDX-FileCopyrightText: The Ullage Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// Status is what `status --json` prints.
type Status struct {
	State      string          `json:"state"` // running, degraded or stopped
	Problems   []string        `json:"problems"`
	Home       string          `json:"home"`
	Server     string          `json:"server"`
	Kubeconfig string          `json:"kubeconfig"`
	Kubectl    string          `json:"kubectl"`
	Bin        string          `json:"bin"`
	Logs       string          `json:"logs"`
	Options    Options         `json:"options"`
	Ports      map[string]int  `json:"ports"`
	Addresses  []string        `json:"addresses"`
	Processes  []ProcessStatus `json:"processes"`
	Nodes      []NodeStatus    `json:"nodes"`
	KwokNodes  []string        `json:"kwok_nodes"`
}

// ProcessStatus is one process of a cluster.
type ProcessStatus struct {
	Name    string `json:"name"`
	Node    string `json:"node"`
	PID     int    `json:"pid"`
	Running bool   `json:"running"`
	Stopped bool   `json:"stopped"` // by `localcluster stop`
	Log     string `json:"log"`
}

// NodeStatus is one real node.
type NodeStatus struct {
	Node
	Root              string `json:"root"`
	Ready             bool   `json:"ready"`
	MountNamespacePID int    `json:"mount_namespace_pid"`
	KubeletRoot       string `json:"kubelet_root"`
	PodLogs           string `json:"pod_logs"`
	Cgroup            string `json:"cgroup"`
}

// stoppedStatus is the status where no cluster is.
func stoppedStatus(home Home) Status {
	return Status{
		State: "stopped", Home: string(home), Problems: []string{}, Addresses: []string{},
		Processes: []ProcessStatus{}, Nodes: []NodeStatus{}, KwokNodes: []string{},
	}
}

// status collects the state of a cluster.
func (s *State) status() Status {
	status := Status{
		State: "running", Home: string(s.home), Server: s.Endpoint.URL(), Kubeconfig: s.home.Kubeconfig(),
		Kubectl: s.home.Path("bin", "kubectl"), Bin: s.home.Bin(), Logs: s.home.Logs(), Options: s.Options,
		Ports: s.Endpoint.Ports, Problems: s.broken(),
		Addresses: []string{}, Processes: []ProcessStatus{}, Nodes: []NodeStatus{}, KwokNodes: []string{},
	}
	for _, process := range s.Processes {
		status.Processes = append(status.Processes, ProcessStatus{
			process.Name, process.Node, process.PID, s.running(process), process.Stopped, process.Log,
		})
	}
	ready := map[string]bool{}
	if api, err := newClient(s.home); err == nil {
		if found, err := api.readyNodes(); err == nil {
			ready = found
		}
	}
	for _, node := range s.Nodes {
		status.Nodes = append(status.Nodes, NodeStatus{
			Node: *node, Root: s.home.Node(node.Name), Ready: ready[node.Name], MountNamespacePID: s.namespacePID(node),
			KubeletRoot: node.Private["/var/lib/kubelet"], PodLogs: node.Private["/var/log/pods"],
			Cgroup: s.home.nodeCgroup(node.Name),
		})
	}
	for index := range s.Options.Kwok {
		status.KwokNodes = append(status.KwokNodes, kwokName(index))
	}
	if len(s.Nodes) > 0 {
		status.Addresses = clusterAddresses(len(s.Nodes))
	}
	if len(status.Problems) > 0 {
		status.State = "degraded"
	}
	return status
}

// running says whether a process of this boot runs.
func (s *State) running(process *Process) bool { return s.sameBoot() && process.alive() }

// broken lists what is not as it should be.
func (s *State) broken() []string {
	problems := []string{}
	if !s.Ready {
		problems = append(problems, "`up` did not finish")
	}
	for _, process := range s.Processes {
		switch {
		case process.Stopped:
			problems = append(problems, process.title()+" was stopped")
		case !s.running(process):
			problems = append(problems, process.title()+" does not run (log: "+process.Log+")")
		}
	}
	api, err := newClient(s.home)
	if err != nil {
		return append(problems, err.Error())
	}
	ready, err := api.readyNodes()
	if err != nil {
		return append(problems, "the API server does not answer: "+err.Error())
	}
	for _, node := range s.Nodes {
		if !ready[node.Name] {
			problems = append(problems, node.Name+" is not Ready")
		}
	}
	return problems
}

// printStatus writes the status for people or, as JSON, for programs.
func printStatus(output io.Writer, status Status, asJSON bool) error {
	if asJSON {
		encoder := json.NewEncoder(output)
		encoder.SetIndent("", "  ")
		return encoder.Encode(status)
	}
	fmt.Fprintf(output, "state       %s\n", status.State)
	if status.State == "stopped" {
		return nil
	}
	for _, problem := range status.Problems {
		fmt.Fprintf(output, "problem     %s\n", problem)
	}
	fmt.Fprintf(output, "server      %s\nkubeconfig  %s\nlogs        %s\n", status.Server, status.Kubeconfig, status.Logs)
	if len(status.KwokNodes) > 0 {
		fmt.Fprintf(output, "KWOK nodes  %d\n", len(status.KwokNodes))
	}
	table := tabwriter.NewWriter(output, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "\nPROCESS\tNODE\tPID\tRUNS")
	processes := slices.SortedFunc(slices.Values(status.Processes), func(a, b ProcessStatus) int {
		if a.Node != b.Node {
			return strings.Compare(a.Node, b.Node)
		}
		return strings.Compare(a.Name, b.Name)
	})
	for _, process := range processes {
		fmt.Fprintf(table, "%s\t%s\t%d\t%v\n", process.Name, process.Node, process.PID, process.Running)
	}
	fmt.Fprintln(table, "\nNODE\tADDRESS\tPODS\tREADY\tROOT")
	for _, node := range status.Nodes {
		fmt.Fprintf(table, "%s\t%s\t%s\t%v\t%s\n", node.Name, node.Address, node.Subnet, node.Ready, node.Root)
	}
	return table.Flush()
}
