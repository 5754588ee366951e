// SPDX-FileCopyrightText: The Ullage Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// startLimit is how long one process may take until it works.
const startLimit = 5 * time.Minute

// up starts a cluster, or says that the one that was asked for runs already.
func up(home Home, options Options, installDeps bool) error {
	if options.Nodes > 0 && os.Geteuid() != 0 {
		return errors.New("real nodes need root: run as root, or give --nodes 0 --kwok 10 for a real control plane with fake nodes, which any user can start")
	}
	options.Private = resolveAll(options.Private)
	if options.Nodes > 0 {
		if err := checkPaths(home, options.Private); err != nil {
			return err
		}
	}
	binaries, err := prepare(options, installDeps)
	if err != nil {
		return err
	}
	if err := refuseSecond(home, options); err != nil {
		return err
	}
	lock, err := lockHome(home, "up", true, lockPatience)
	if err != nil {
		return err
	}
	defer lock.Close()
	release, err := lockMachine(options.Nodes > 0)
	if err != nil {
		return err
	}
	defer release()
	if err := refuseSecond(home, options); err != nil { // of two at once, one is first
		return err
	}
	warnOnInterrupt()
	begin := time.Now()
	running, err := settlePrevious(home, options, binaries)
	if err != nil || running {
		return err
	}
	if options.Nodes > 0 {
		if err := openLoopback(); err != nil {
			return err
		}
	}
	state, err := newState(home, options, binaries)
	if err != nil {
		return err
	}
	if err := state.bringUp(release); err != nil {
		return fmt.Errorf("%w\nlogs of all processes: %s\nclean up with: localcluster down", err, home.Logs())
	}
	progress("up in %.1f s: %s", time.Since(begin).Seconds(), state.describe())
	progress("export KUBECONFIG=%s", home.Kubeconfig())
	return nil
}

// prepare checks the system and builds what the cluster runs.
func prepare(options Options, installDeps bool) (map[string]string, error) {
	if options.Nodes > 0 {
		if err := requireTools(nodeRequirements(true), installDeps); err != nil {
			return nil, err
		}
	}
	names := clusterComponents(options.Nodes, options.Kwok, options.Kubernetes)
	binaries, err := buildAll(names)
	if err != nil || options.Nodes == 0 {
		return binaries, err
	}
	binaries["pause.tar"], err = ensurePause()
	return binaries, err
}

// warnOnInterrupt tells the user what an interrupted start leaves behind.
func warnOnInterrupt() {
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-interrupts
		progress("interrupted: clean up with `localcluster down`")
		os.Exit(130)
	}()
}

// bringUp starts everything in the order in which the parts need one another.
// It releases the machine once a process says that this cluster lives.
func (s *State) bringUp(release func()) error {
	if err := s.save(); err != nil {
		return err
	}
	if err := s.linkPrograms(); err != nil {
		return err
	}
	if len(s.Nodes) > 0 {
		if err := setUpNetwork(len(s.Nodes)); err != nil {
			return err
		}
		if err := s.prepareDirs(); err != nil {
			return err
		}
	}
	if err := s.writeControlPlaneConfig(); err != nil {
		return err
	}
	etcd := s.etcdProcess()
	if err := s.start(etcd); err != nil {
		return err
	}
	release()
	api, err := s.startControlPlane(etcd)
	if err != nil {
		return err
	}
	if err := s.startNodes(); err != nil {
		return err
	}
	if s.Options.Kwok > 0 {
		if err := createKwokNodes(api, s.Options); err != nil {
			return err
		}
		if err := s.start(s.kwokProcess()); err != nil {
			return err
		}
	}
	if err := s.awaitAll(api); err != nil {
		return err
	}
	s.Ready = true
	return s.save()
}

// linkPrograms makes the folder of programs that users and tests call.
func (s *State) linkPrograms() error {
	if err := os.MkdirAll(s.home.Bin(), 0o755); err != nil {
		return err
	}
	for name, target := range s.Binaries {
		if name == "kube" {
			name = "kubectl" // the binary acts by the name it is called by
		}
		if err := os.Symlink(target, filepath.Join(s.home.Bin(), name)); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}

// startControlPlane starts the API server on etcd, and what only needs them.
func (s *State) startControlPlane(etcd *Process) (*client, error) {
	progress("starting the control plane")
	apiserver := s.apiserverProcess()
	if err := s.startContainerds(); err != nil { // the nodes' containerds start meanwhile
		return nil, err
	}
	if err := await(etcd, startLimit, func() bool { return httpOK("http://" + s.Endpoint.on("etcd") + "/health") }); err != nil {
		return nil, err
	}
	if err := s.start(apiserver); err != nil {
		return nil, err
	}
	api, err := newClient(s.home)
	if err != nil {
		return nil, err
	}
	if err := s.importPause(); err != nil {
		return nil, err
	}
	if err := await(apiserver, startLimit, api.serving); err != nil {
		return nil, err
	}
	others := []*Process{s.controllerManagerProcess(), s.schedulerProcess()}
	if len(s.Nodes) > 0 {
		others = append(others, s.proxyProcess(), s.dnsProcess())
	}
	for _, process := range others {
		if err := s.start(process); err != nil {
			return nil, err
		}
	}
	return api, nil
}

// startContainerds gives each node its cgroup, mount namespace and containerd.
func (s *State) startContainerds() error {
	for _, node := range s.Nodes {
		if err := s.writeNodeConfig(node); err != nil {
			return err
		}
		if err := s.startContainerd(node); err != nil {
			return err
		}
	}
	return nil
}

// startContainerd starts containerd in a new cgroup and mount namespace of a node.
func (s *State) startContainerd(node *Node) error {
	if err := createNodeCgroup(s.home, node.Name); err != nil {
		return err
	}
	if err := s.startHolder(node); err != nil {
		return err
	}
	containerd, _ := s.nodeProcesses(node)
	return s.start(containerd)
}

// importPause waits for the containerds and gives them the pause image.
func (s *State) importPause() error {
	for _, node := range s.Nodes {
		if err := await(s.process("containerd", node.Name), startLimit, func() bool { return s.containerdServing(node) }); err != nil {
			return err
		}
	}
	if len(s.Nodes) == 0 {
		return nil
	}
	return s.loadImage(s.Binaries["pause.tar"])
}

// startNodes starts the kubelets.
func (s *State) startNodes() error {
	for _, node := range s.Nodes {
		_, kubelet := s.nodeProcesses(node)
		if err := s.start(kubelet); err != nil {
			return err
		}
	}
	return nil
}

// awaitAll waits until the cluster is what was asked for.
func (s *State) awaitAll(api *client) error {
	progress("waiting for %d nodes", len(s.Nodes)+s.Options.Kwok)
	for name, scheme := range map[string]string{"scheduler": "https", "controller-manager": "https"} {
		url := scheme + "://" + s.Endpoint.on(name) + "/healthz"
		if err := await(s.process(name, ""), startLimit, func() bool { return httpOK(url) }); err != nil {
			return err
		}
	}
	for _, node := range s.Nodes {
		if err := await(s.process("kubelet", node.Name), startLimit, func() bool {
			ready, err := api.readyNodes()
			return err == nil && ready[node.Name]
		}); err != nil {
			return err
		}
	}
	if len(s.Nodes) > 0 {
		if err := await(s.process("dns", ""), startLimit, func() bool {
			return httpOK("http://" + dnsAddress + ":8181/ready")
		}); err != nil {
			return err
		}
	}
	if s.Options.Kwok > 0 {
		if err := await(s.process("kwok", ""), startLimit+time.Duration(s.Options.Kwok)*100*time.Millisecond, func() bool {
			ready, err := api.readyNodes()
			return err == nil && len(ready) >= len(s.Nodes)+s.Options.Kwok
		}); err != nil {
			return err
		}
	}
	// Pods can be created only once this exists.
	return await(s.process("controller-manager", ""), startLimit, func() bool {
		return api.do(http.MethodGet, "/api/v1/namespaces/default/serviceaccounts/default", nil, nil) == nil
	})
}

// containerdServing says whether a node's containerd answers.
func (s *State) containerdServing(node *Node) bool {
	return runTool(s.Binaries["ctr"], "--address", node.Socket, "--connect-timeout", "1s", "version") == nil
}

// kubeletHealth is the health address of a node's kubelet.
func kubeletHealth(node *Node) string {
	return "http://" + node.Address + ":" + strconv.Itoa(10248) + "/healthz"
}
