// SPDX-FileCopyrightText: The Ullage Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"sync"
)

// kwokAnnotation says that a node is KWOK's.
const kwokAnnotation = "kwok.x-k8s.io/node"

// kwokWriters is how many nodes are created at the same time.
const kwokWriters = 8

// kwokProcess plays the kubelets of the fake nodes.
func (s *State) kwokProcess() *Process {
	return &Process{
		Name: "kwok",
		Argv: []string{
			s.Binaries["kwok"],
			"--kubeconfig=" + s.home.Secret("kwok.kubeconfig"),
			"--config=" + filepath.Join(filepath.Dir(s.Binaries["kwok"]), "stages.yaml"),
			"--manage-all-nodes=false",
			"--manage-nodes-with-annotation-selector=" + kwokAnnotation + "=fake",
			"--node-lease-duration-seconds=40",
			"--cidr=10.160.0.0/12",
		},
		Log: s.home.Path("logs", "kwok.log"),
	}
}

// kwokName is the name of the fake node with this index, from 0.
func kwokName(index int) string { return fmt.Sprintf("kwok-%04d", index) }

// kwokNode is the object of one fake node.
func kwokNode(name string, options Options) object {
	labels := map[string]string{
		"type":                   "kwok",
		"kubernetes.io/hostname": name,
		"kubernetes.io/os":       "linux",
		"kubernetes.io/arch":     "amd64",
	}
	maps.Copy(labels, options.Labels)
	spec := object{}
	if match := taintPattern.FindStringSubmatch(options.KwokTaint); match != nil {
		spec["taints"] = []object{{"key": match[1], "value": match[2], "effect": match[3]}}
	}
	return object{
		"apiVersion": "v1",
		"kind":       "Node",
		"metadata": object{
			"name":        name,
			"labels":      labels,
			"annotations": map[string]string{kwokAnnotation: "fake", "node.alpha.kubernetes.io/ttl": "0"},
		},
		"spec":   spec,
		"status": object{"allocatable": options.KwokResources, "capacity": options.KwokResources},
	}
}

// createKwokNodes creates the fake nodes.
func createKwokNodes(api *client, options Options) error {
	indexes := make(chan int)
	failed := make([]error, kwokWriters)
	var group sync.WaitGroup
	for writer := range kwokWriters {
		group.Go(func() {
			for index := range indexes {
				if failed[writer] == nil {
					failed[writer] = api.do(http.MethodPost, "/api/v1/nodes", kwokNode(kwokName(index), options), nil)
				}
			}
		})
	}
	for index := range options.Kwok {
		indexes <- index
	}
	close(indexes)
	group.Wait()
	return errors.Join(failed...)
}
