// SPDX-FileCopyrightText: The Ullage Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	_ "embed"
)

//go:embed files/containerd.toml.tmpl
var containerdTemplate string

// capSysResource is the number of the capability that lets a process lower an
// OOM score (capability.h).
const capSysResource = 24

// overlayMagic is the file system type of overlayfs (magic.h).
const overlayMagic = 0x794c7630

// writeNodeConfig writes the files that a node's programs read.
func (s *State) writeNodeConfig(node *Node) error {
	containerd, err := render(containerdTemplate, map[string]any{
		"Dir":                 s.home.Node(node.Name),
		"Socket":              node.Socket,
		"Snapshotter":         snapshotter(string(s.home)),
		"PauseImage":          pauseImage,
		"RestrictOOMScoreAdj": !hasCapability(capSysResource),
		"CNIBin":              filepath.Dir(s.Binaries["ptp"]),
		"Shim":                s.Binaries["containerd-shim-runc-v2"],
		"Runc":                s.Binaries["runc"],
	})
	if err != nil {
		return err
	}
	if err := writeFile(s.home.Node(node.Name, "containerd.toml"), containerd, 0o644); err != nil {
		return err
	}
	if err := writeJSON(s.home.Node(node.Name, "cni", "10-localcluster.conflist"), cniConfig(s.home, node)); err != nil {
		return err
	}
	return writeJSON(s.home.Node(node.Name, "kubelet.yaml"), kubeletConfig(s.home, node, s.Options.Kubernetes))
}

// cniConfig gives pods addresses of the node's subnet behind routed veth pairs.
// Without a bridge every packet passes the host's IP layer, so that a Service
// works between two pods of one node without br_netfilter.
func cniConfig(home Home, node *Node) object {
	return object{
		"cniVersion": "1.0.0",
		"name":       "localcluster",
		"plugins": []object{{
			"type":   "ptp",
			"ipMasq": false, // one nftables rule does it for all
			"ipam": object{
				"type":    "host-local",
				"ranges":  [][]object{{{"subnet": node.Subnet}}},
				"routes":  []object{{"dst": "0.0.0.0/0"}},
				"dataDir": home.Node(node.Name, "ipam"),
			},
		}},
	}
}

// kubeletConfig is the KubeletConfiguration of a node; kubernetes is as in Options.
func kubeletConfig(home Home, node *Node, kubernetes string) object {
	config := object{
		"apiVersion":               "kubelet.config.k8s.io/v1beta1",
		"kind":                     "KubeletConfiguration",
		"address":                  node.Address,
		"healthzBindAddress":       node.Address,
		"containerRuntimeEndpoint": "unix://" + node.Socket,
		"authentication": object{
			"anonymous": object{"enabled": false},
			"webhook":   object{"enabled": true},
			"x509":      object{"clientCAFile": home.Secret("ca.crt")},
		},
		"authorization":   object{"mode": "Webhook"},
		"clusterDNS":      []string{dnsAddress},
		"clusterDomain":   "cluster.local",
		"volumePluginDir": home.Node(node.Name, "volume-plugins"),
		"cgroupDriver":    "cgroupfs",
		"cgroupRoot":      home.nodeCgroup(node.Name),
		"failCgroupV1":    false, // harmless on a v2 host
		"failSwapOn":      false,
		"oomScoreAdj":     0,
		// The machine is shared: nothing is enforced on the node as a whole.
		"enforceNodeAllocatable": []string{},
		// kubelet must not set up the firewall of the host.
		"makeIPTablesUtilChains": false,
		// Loaded images cannot be pulled again, so they are never collected.
		"imageGCHighThresholdPercent": 100,
		"evictionHard": map[string]string{
			"memory.available": "100Mi", "nodefs.available": "1%", "nodefs.inodesFree": "1%", "imagefs.available": "1%",
		},
	}
	if kubernetes == "" { // before 1.35 a kubelet refuses it
		// A loaded image stays free to use when the same one was pulled from a registry.
		config["imagePullCredentialsVerificationPolicy"] = "NeverVerify"
	}
	return config
}

// nodeProcesses are containerd and kubelet of a node.
func (s *State) nodeProcesses(node *Node) (containerd, kubelet *Process) {
	containerd = &Process{
		Name: "containerd", Node: node.Name,
		Argv: []string{s.Binaries["containerd"], "--config", s.home.Node(node.Name, "containerd.toml")},
		Log:  s.home.Path("logs", node.Name, "containerd.log"),
	}
	kubelet = &Process{
		Name: "kubelet", Node: node.Name,
		Argv: []string{
			s.Binaries["kube"], "kubelet",
			"--config", s.home.Node(node.Name, "kubelet.yaml"),
			"--kubeconfig", s.home.Node(node.Name, "kubeconfig"),
			"--hostname-override", node.Name,
			"--node-ip", node.Address,
			"--node-labels", joinLabels(s.Options.Labels, s.Options.NodeLabels[node.Name]),
		},
		Log: s.home.Path("logs", node.Name, "kubelet.log"),
	}
	return containerd, kubelet
}

// joinLabels merges label sets, later ones win, into kubelet's notation.
func joinLabels(sets ...map[string]string) string {
	merged := map[string]string{}
	for _, set := range sets {
		maps.Copy(merged, set)
	}
	var pairs []string
	for _, key := range slices.Sorted(maps.Keys(merged)) {
		pairs = append(pairs, key+"="+merged[key])
	}
	return strings.Join(pairs, ",")
}

// snapshotter is overlayfs, except on a folder that is itself an overlay
// (inside a container), where overlayfs cannot be stacked.
func snapshotter(dir string) string {
	var stat syscall.Statfs_t
	if err := syscall.Statfs(dir, &stat); err == nil && uint32(stat.Type) == overlayMagic {
		return "native"
	}
	return "overlayfs"
}

// hasCapability says whether this process has a capability.
func hasCapability(number int) bool {
	raw, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return false
	}
	effective, err := parseCapabilities(string(raw))
	return err == nil && effective&(1<<number) != 0
}

// parseCapabilities reads the effective set out of /proc/PID/status.
func parseCapabilities(status string) (uint64, error) {
	for line := range strings.Lines(status) {
		if value, found := strings.CutPrefix(line, "CapEff:"); found {
			return strconv.ParseUint(strings.TrimSpace(value), 16, 64)
		}
	}
	return 0, fmt.Errorf("no CapEff line")
}
