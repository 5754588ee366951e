// SPDX-FileCopyrightText: The Ullage Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestNodeConfigurationsAreApart(t *testing.T) {
	home := Home(t.TempDir())
	state := &State{home: home, Options: Options{Nodes: 2, Labels: map[string]string{"b": "1", "a": "2"}, NodeLabels: map[string]map[string]string{"node-2": {"a": "3"}}}}
	state.Nodes = planNodes(home, state.Options)
	state.Binaries = map[string]string{"ptp": "/cache/cni/ptp", "runc": "/cache/runc", "containerd-shim-runc-v2": "/cache/shim"}
	if err := os.MkdirAll(home.Node("node-1", "cni"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := state.writeNodeConfig(state.Nodes[0]); err != nil {
		t.Fatal(err)
	}
	toml, err := os.ReadFile(home.Node("node-1", "containerd.toml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{home.Node("node-1", "containerd.sock"), "bin_dirs = ['/cache/cni']", "BinaryName = '/cache/runc'", pauseImage} {
		if !strings.Contains(string(toml), want) {
			t.Errorf("containerd.toml lacks %s", want)
		}
	}
	first, second := kubeletConfig(home, state.Nodes[0], ""), kubeletConfig(home, state.Nodes[1], "")
	for _, key := range []string{"address", "cgroupRoot", "containerRuntimeEndpoint", "volumePluginDir"} {
		if first[key] == second[key] {
			t.Errorf("two kubelets share %s %v", key, first[key])
		}
	}
	if older := kubeletConfig(home, state.Nodes[0], "1.34"); older["imagePullCredentialsVerificationPolicy"] != nil {
		t.Error("a kubelet before 1.35 refuses a policy of pulled images")
	}
	_, kubelet := state.nodeProcesses(state.Nodes[1])
	if got := kubelet.Argv[len(kubelet.Argv)-1]; got != "a=3,b=1" {
		t.Errorf("labels %q", got)
	}
}

func TestSchedulerKeepsItsRateUnlessAsked(t *testing.T) {
	state := &State{home: "/h"}
	if connection := state.schedulerConfig()["clientConnection"].(object); connection["qps"] != nil {
		t.Errorf("qps without being asked: %v", connection)
	}
	state.Options.SchedulerQPS = 2000
	if connection := state.schedulerConfig()["clientConnection"].(object); connection["qps"] != 2000 || connection["burst"] != 4000 {
		t.Errorf("got %v", connection)
	}
}

func TestNameServerForwardsOnlyWhereThereIsOne(t *testing.T) {
	path := filepath.Join(t.TempDir(), "resolv.conf")
	for content, want := range map[string]string{"# none\nsearch x\n": "", "nameserver 192.0.2.1\n": path} {
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		if got := upstreamDNS(path); got != want {
			t.Errorf("%q: got %q", content, got)
		}
	}
	corefile, err := render(corefileTemplate, map[string]string{"Address": "a", "Kubeconfig": "k", "Upstream": ""})
	if err != nil || strings.Contains(string(corefile), "forward") {
		t.Errorf("%v: %s", err, corefile)
	}
}

func TestCertificatesConvinceAStrictClient(t *testing.T) {
	home := Home(t.TempDir())
	if err := writePKI(home, []net.IP{net.ParseIP("127.0.0.1"), net.ParseIP(serviceAddress)}); err != nil {
		t.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(home.Secret("apiserver.crt"), home.Secret("apiserver.key"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	ca, err := os.ReadFile(home.Secret("ca.crt"))
	if err != nil || !roots.AppendCertsFromPEM(ca) {
		t.Fatal("no authority", err)
	}
	for _, name := range []string{"kubernetes.default.svc", serviceAddress, "127.0.0.1"} {
		if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: name}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	block, _ := pem.Decode(ca)
	authority, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	// What Python's VERIFY_X509_STRICT asks for on top.
	if len(authority.SubjectKeyId) == 0 || len(pair.Leaf.AuthorityKeyId) == 0 || authority.KeyUsage&x509.KeyUsageCertSign == 0 {
		t.Error("key identifiers or key usage are missing")
	}
	if _, ok := pair.PrivateKey.(*ecdsa.PrivateKey); !ok {
		t.Errorf("key is a %T", pair.PrivateKey)
	}
	if info, err := os.Stat(home.Secret("ca.key")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("ca.key: %v %v", info, err)
	}
}

func TestKwokNodeCarriesLabelsResourcesAndTaint(t *testing.T) {
	node := kwokNode(kwokName(7), Options{Labels: map[string]string{"a": "b"}, KwokResources: map[string]string{"x/y": "8"}, KwokTaint: "k=v:NoSchedule"})
	metadata := node["metadata"].(object)
	if metadata["name"] != "kwok-0007" || metadata["labels"].(map[string]string)["a"] != "b" {
		t.Errorf("metadata %v", metadata)
	}
	if taints := node["spec"].(object)["taints"].([]object); taints[0]["key"] != "k" || taints[0]["effect"] != "NoSchedule" {
		t.Errorf("taints %v", taints)
	}
	if node["status"].(object)["allocatable"].(map[string]string)["x/y"] != "8" {
		t.Errorf("status %v", node["status"])
	}
}
