// SPDX-FileCopyrightText: The Ullage Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	_ "embed"
)

//go:embed files/Corefile.tmpl
var corefileTemplate string

// ports are what the processes of a cluster listen on, with the numbers that
// they have where nothing else takes them.
var ports = map[string]int{
	"apiserver": 6443, "etcd": 2379, "etcd-peer": 2380,
	"controller-manager": 10257, "scheduler": 10259, "proxy-health": 10256, "proxy-metrics": 10249,
}

// planEndpoint chooses where the control plane listens: with nodes on an
// address that pods reach, without on the loopback, so that no root is needed.
func planEndpoint(nodes int) (Endpoint, error) {
	endpoint := Endpoint{Address: "127.0.0.1", Ports: map[string]int{}}
	if nodes > 0 {
		endpoint.Address = serverAddress
	}
	var held []net.Listener
	defer func() {
		for _, listener := range held {
			listener.Close()
		}
	}()
	for name, preferred := range ports {
		address := "127.0.0.1"
		if name == "apiserver" && nodes > 0 {
			address = "127.0.0.2" // like the address of its own, only listeners on all addresses are in its way
		}
		listener, err := net.Listen("tcp", fmt.Sprintf("%s:%d", address, preferred))
		if err != nil {
			listener, err = net.Listen("tcp", address+":0")
		}
		if err != nil {
			return endpoint, fmt.Errorf("find a free port for %s: %w", name, err)
		}
		held = append(held, listener) // all at once, so that no number comes twice
		endpoint.Ports[name] = listener.Addr().(*net.TCPAddr).Port
	}
	return endpoint, nil
}

// on is an address of the loopback with the port of a process.
func (e Endpoint) on(name string) string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(e.Ports[name]))
}

// users are the clients of the API server.
func (s *State) users() []user {
	users := []user{
		{"localcluster-admin", []string{"system:masters"}, s.home.Kubeconfig()},
		{"system:kube-controller-manager", nil, s.home.Secret("controller-manager.kubeconfig")},
		{"system:kube-scheduler", nil, s.home.Secret("scheduler.kubeconfig")},
	}
	if s.Options.Kwok > 0 {
		users = append(users, user{"localcluster-kwok", []string{"system:masters"}, s.home.Secret("kwok.kubeconfig")})
	}
	if len(s.Nodes) > 0 {
		users = append(users,
			user{"system:kube-proxy", nil, s.home.Secret("proxy.kubeconfig")},
			user{"localcluster-dns", []string{"system:masters"}, s.home.Secret("dns.kubeconfig")})
	}
	for _, node := range s.Nodes {
		users = append(users, user{"system:node:" + node.Name, []string{"system:nodes"}, s.home.Node(node.Name, "kubeconfig")})
	}
	return users
}

// writeControlPlaneConfig writes keys, kubeconfigs and the files that the
// control plane's programs read.
func (s *State) writeControlPlaneConfig() error {
	addresses := []net.IP{net.ParseIP("127.0.0.1"), net.ParseIP(s.Endpoint.Address), net.ParseIP(serviceAddress)}
	if err := writePKI(s.home, addresses); err != nil {
		return err
	}
	if err := writeUsers(s.home, s.Endpoint.URL(), s.users()); err != nil {
		return err
	}
	if err := os.MkdirAll(s.home.Path("config"), 0o755); err != nil {
		return err
	}
	if err := writeJSON(s.home.Path("config", "scheduler.yaml"), s.schedulerConfig()); err != nil {
		return err
	}
	if len(s.Nodes) == 0 {
		return nil
	}
	if err := writeJSON(s.home.Path("config", "proxy.yaml"), s.proxyConfig()); err != nil {
		return err
	}
	corefile, err := render(corefileTemplate, map[string]string{
		"Address": dnsAddress, "Kubeconfig": s.home.Secret("dns.kubeconfig"), "Upstream": upstreamDNS("/etc/resolv.conf"),
	})
	if err != nil {
		return err
	}
	return writeFile(s.home.Path("config", "Corefile"), corefile, 0o644)
}

// upstreamDNS returns the resolver file if it names a server; CoreDNS does not
// start on one that names none, as on a machine without a network.
func upstreamDNS(path string) string {
	raw, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(raw)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "nameserver" {
			return path
		}
	}
	return ""
}

// schedulerConfig is the KubeSchedulerConfiguration.
func (s *State) schedulerConfig() object {
	connection := object{"kubeconfig": s.home.Secret("scheduler.kubeconfig")}
	if qps := s.Options.SchedulerQPS; qps > 0 {
		connection["qps"], connection["burst"] = qps, 2*qps
	}
	return object{
		"apiVersion":       "kubescheduler.config.k8s.io/v1",
		"kind":             "KubeSchedulerConfiguration",
		"clientConnection": connection,
		"leaderElection":   object{"leaderElect": false},
	}
}

// proxyConfig is the KubeProxyConfiguration of the one kube-proxy: all nodes
// share the host's network namespace.
func (s *State) proxyConfig() object {
	return object{
		"apiVersion":         "kubeproxy.config.k8s.io/v1alpha1",
		"kind":               "KubeProxyConfiguration",
		"mode":               "nftables",
		"clusterCIDR":        podNetwork,
		"hostnameOverride":   s.Nodes[0].Name,
		"healthzBindAddress": s.Endpoint.on("proxy-health"),
		"metricsBindAddress": s.Endpoint.on("proxy-metrics"),
		"clientConnection":   object{"kubeconfig": s.home.Secret("proxy.kubeconfig")},
		// Leave the host's connection tracking as it is.
		"conntrack": object{"maxPerCore": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
	}
}

// kube describes a process of the combined binary.
func (s *State) kube(name, component string, flags ...string) *Process {
	return &Process{
		Name: name,
		Argv: append([]string{s.Binaries["kube"], component}, flags...),
		Log:  s.home.Path("logs", name+".log"),
	}
}

// etcdProcess is the data store. It keeps nothing that must survive a power
// cut, so it does not wait for the disk.
func (s *State) etcdProcess() *Process {
	client, peer := "http://"+s.Endpoint.on("etcd"), "http://"+s.Endpoint.on("etcd-peer")
	return s.kube("etcd", "etcd",
		"--name=localcluster",
		"--data-dir="+s.home.Path("etcd"),
		"--listen-client-urls="+client, "--advertise-client-urls="+client,
		"--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer,
		"--initial-cluster=localcluster="+peer,
		"--unsafe-no-fsync",
		"--quota-backend-bytes=8589934592",
		"--log-level=warn")
}

// apiserverProcess is the API server.
func (s *State) apiserverProcess() *Process {
	flags := []string{
		"--etcd-servers=http://" + s.Endpoint.on("etcd"),
		"--bind-address=" + s.Endpoint.Address,
		"--secure-port=" + strconv.Itoa(s.Endpoint.Ports["apiserver"]),
		"--tls-cert-file=" + s.home.Secret("apiserver.crt"),
		"--tls-private-key-file=" + s.home.Secret("apiserver.key"),
		"--client-ca-file=" + s.home.Secret("ca.crt"),
		"--token-auth-file=" + s.home.Secret("tokens.csv"),
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--service-account-key-file=" + s.home.Secret("service-account.pub"),
		"--service-account-signing-key-file=" + s.home.Secret("service-account.key"),
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-cluster-ip-range=" + serviceNetwork,
		"--kubelet-client-certificate=" + s.home.Secret("kubelet-client.crt"),
		"--kubelet-client-key=" + s.home.Secret("kubelet-client.key"),
		"--kubelet-preferred-address-types=InternalIP",
		"--allow-privileged=true",
	}
	// said even where no endpoint is made of it: without a default route kube-apiserver finds none
	flags = append(flags, "--advertise-address="+serverAddress)
	if len(s.Nodes) == 0 {
		flags = append(flags, "--endpoint-reconciler-type=none") // a loopback address is no endpoint
	}
	for _, version := range s.Options.ServedAPIs {
		flags = append(flags, "--runtime-config="+version+"=true")
	}
	return s.kube("apiserver", "kube-apiserver", append(flags, s.gates()...)...)
}

// gates are the flags of a part of the control plane that turn feature gates on.
func (s *State) gates() []string {
	var flags []string
	for _, name := range s.Options.FeatureGates {
		flags = append(flags, "--feature-gates="+name+"=true")
	}
	return flags
}

// controllerManagerProcess runs the controllers.
func (s *State) controllerManagerProcess() *Process {
	kubeconfig := s.home.Secret("controller-manager.kubeconfig")
	return s.kube("controller-manager", "kube-controller-manager", append(s.gates(),
		"--kubeconfig="+kubeconfig,
		"--authentication-kubeconfig="+kubeconfig,
		"--authorization-kubeconfig="+kubeconfig,
		"--bind-address=127.0.0.1",
		"--secure-port="+strconv.Itoa(s.Endpoint.Ports["controller-manager"]),
		"--service-account-private-key-file="+s.home.Secret("service-account.key"),
		"--root-ca-file="+s.home.Secret("ca.crt"),
		"--cluster-signing-cert-file="+s.home.Secret("ca.crt"),
		"--cluster-signing-key-file="+s.home.Secret("ca.key"),
		"--use-service-account-credentials=true",
		"--leader-elect=false")...)
}

// schedulerProcess is the scheduler.
func (s *State) schedulerProcess() *Process {
	kubeconfig := s.home.Secret("scheduler.kubeconfig")
	return s.kube("scheduler", "kube-scheduler", append(s.gates(),
		"--config="+s.home.Path("config", "scheduler.yaml"),
		"--authentication-kubeconfig="+kubeconfig,
		"--authorization-kubeconfig="+kubeconfig,
		"--bind-address=127.0.0.1",
		"--secure-port="+strconv.Itoa(s.Endpoint.Ports["scheduler"]))...)
}

// proxyProcess makes Services work on all nodes.
func (s *State) proxyProcess() *Process {
	return s.kube("proxy", "kube-proxy", "--config="+s.home.Path("config", "proxy.yaml"))
}

// dnsProcess is the cluster's name server.
func (s *State) dnsProcess() *Process {
	return &Process{
		Name: "dns",
		Argv: []string{s.Binaries["coredns"], "-conf", s.home.Path("config", "Corefile")},
		Log:  s.home.Path("logs", "dns.log"),
	}
}

// await waits until a process does its work; it fails as soon as the process ended.
func await(process *Process, limit time.Duration, working func() bool) error {
	ended := false
	if waitUntil(limit, func() bool {
		ended = !process.alive()
		return ended || working()
	}) && !ended {
		return nil
	}
	what := fmt.Sprintf("does not work after %s", limit)
	if ended {
		what = "ended"
	}
	return fmt.Errorf("%s %s; the end of %s:\n%s", process.title(), what, process.Log, indent(logTail(process.Log, 10)))
}

// indent moves the lines of a log to the right.
func indent(text string) string { return "    " + strings.ReplaceAll(text, "\n", "\n    ") }
