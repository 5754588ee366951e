// SPDX-FileCopyrightText: The Ullage Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"text/template"
	"time"

	_ "embed"
)

// The network plan of a cluster with nodes. All nodes share the network
// namespace in which the cluster is started: each has an address on lo (kubelet
// refuses a loopback address), pods have addresses of their own behind veth
// pairs that the namespace routes.
const (
	nodeNetwork    = "198.18.0.0/24"
	serverAddress  = "198.18.0.1"
	dnsAddress     = "198.18.0.53"
	podNetwork     = "10.244.0.0/16"
	serviceNetwork = "10.96.0.0/16"
	serviceAddress = "10.96.0.1"
	loLabel        = "lo:localclus" // marks our addresses; an interface label has at most 15 bytes
)

//go:embed files/nftables.tmpl
var nftablesTemplate string

// savedSysctls are the settings that kubelet, kube-proxy or CNI change on the host.
var savedSysctls = []string{
	"net/ipv4/ip_forward",
	"vm/overcommit_memory",
	"vm/panic_on_oom",
	"kernel/panic",
	"kernel/panic_on_oops",
	"kernel/keys/root_maxkeys",
	"kernel/keys/root_maxbytes",
	"net/netfilter/nf_conntrack_tcp_timeout_established",
	"net/netfilter/nf_conntrack_tcp_timeout_close_wait",
}

// nodeAddress is the address of the node with this index, from 0.
func nodeAddress(index int) string { return fmt.Sprintf("198.18.0.%d", 11+index) }

// podSubnet holds the pods of the node with this index, from 0.
func podSubnet(index int) string { return fmt.Sprintf("10.244.%d.0/24", index+1) }

// clusterAddresses are the addresses that are added to lo.
func clusterAddresses(nodes int) []string {
	addresses := []string{serverAddress, dnsAddress}
	for index := range nodes {
		addresses = append(addresses, nodeAddress(index))
	}
	return addresses
}

// openLoopback turns lo on, which is off in a new network namespace.
func openLoopback() error { return runTool("ip", "link", "set", "lo", "up") }

// setUpNetwork prepares the host for nodes; the state must already be saved
// with the old sysctls.
func setUpNetwork(nodes int) error {
	for _, address := range clusterAddresses(nodes) {
		if err := runTool("ip", "address", "replace", address+"/32", "dev", "lo", "label", loLabel); err != nil {
			return err
		}
	}
	// A pod that is gone is unreachable; without this its packets leave the
	// machine, and something outside may answer them.
	if err := runTool("ip", "route", "replace", "unreachable", podNetwork); err != nil {
		return err
	}
	// Services are reached from here too, where there is no default route.
	if err := runTool("ip", "route", "replace", serviceNetwork, "dev", "lo", "src", serverAddress); err != nil {
		return err
	}
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1\n"), 0o644); err != nil {
		return fmt.Errorf("turn on IP forwarding: %w", err)
	}
	rules, err := render(nftablesTemplate, map[string]string{"PodNetwork": podNetwork, "NodeNetwork": nodeNetwork})
	if err != nil {
		return err
	}
	command := exec.Command("nft", "-f", "-")
	command.Stdin = bytes.NewReader(rules)
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("nft: %w: %s", err, output)
	}
	return openForwarding()
}

// openForwarding lets pods through where another program (Docker) has set the
// host's FORWARD policy to DROP.
func openForwarding() error {
	policy, err := exec.Command("iptables", "-w", "-S", "FORWARD").Output()
	if err != nil || !strings.Contains(string(policy), "-P FORWARD DROP") {
		return nil // no iptables here, or nothing in the way
	}
	for _, rule := range forwardRules() {
		if err := runTool("iptables", append([]string{"-w", "-I", "FORWARD"}, rule...)...); err != nil {
			return err
		}
	}
	return nil
}

// forwardRules are the iptables rules that openForwarding adds.
func forwardRules() [][]string {
	comment := []string{"-m", "comment", "--comment", "localcluster", "-j", "ACCEPT"}
	return [][]string{
		append([]string{"-s", podNetwork}, comment...),
		append([]string{"-d", podNetwork}, comment...),
	}
}

// readSysctls returns the settings as they are now.
func readSysctls() map[string]string {
	values := map[string]string{}
	for _, name := range savedSysctls {
		if raw, err := os.ReadFile(filepath.Join("/proc/sys", name)); err == nil {
			values[name] = strings.TrimSpace(string(raw))
		} // a setting that this kernel lacks cannot be changed either
	}
	return values
}

// ofNetwork says whether a setting belongs to the network namespace, not to the machine.
func ofNetwork(sysctl string) bool { return strings.HasPrefix(sysctl, "net/") }

// restoreSysctls puts settings back that differ from their saved values: those
// of the network namespace, or those of the machine.
func restoreSysctls(values map[string]string, network bool) error {
	var failed []error
	for name, value := range values {
		if ofNetwork(name) != network {
			continue
		}
		path := filepath.Join("/proc/sys", name)
		raw, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) || strings.TrimSpace(string(raw)) == value {
			continue
		}
		if err := os.WriteFile(path, []byte(value+"\n"), 0o644); err != nil {
			failed = append(failed, fmt.Errorf("restore %s: %w", name, err))
		}
	}
	return errors.Join(failed...)
}

// tearDownNetwork removes all that setUpNetwork, kube-proxy and CNI made.
func tearDownNetwork() error {
	var failed []error
	if _, err := exec.LookPath("nft"); err == nil {
		for _, table := range [][]string{{"ip", "kube-proxy"}, {"ip6", "kube-proxy"}, {"ip", "localcluster"}} {
			if exec.Command("nft", append([]string{"list", "table"}, table...)...).Run() != nil {
				continue // not there
			}
			failed = append(failed, runTool("nft", append([]string{"delete", "table"}, table...)...))
		}
	}
	if _, err := exec.LookPath("iptables"); err == nil {
		for _, rule := range forwardRules() {
			for exec.Command("iptables", append([]string{"-w", "-C", "FORWARD"}, rule...)...).Run() == nil {
				if err := runTool("iptables", append([]string{"-w", "-D", "FORWARD"}, rule...)...); err != nil {
					failed = append(failed, err)
					break
				}
			}
		}
	}
	failed = append(failed, removeVeths(), removeRoutes(), removeAddresses())
	return errors.Join(failed...)
}

// removeRoutes removes the routes that setUpNetwork has made.
func removeRoutes() error {
	var failed []error
	for _, route := range [][]string{{podNetwork, "type", "unreachable"}, {serviceNetwork, "dev", "lo"}} {
		output, err := exec.Command("ip", append([]string{"-4", "route", "show", "exact"}, route...)...).Output()
		if err != nil || len(bytes.TrimSpace(output)) == 0 {
			continue // not there
		}
		if route[1] == "type" {
			route = []string{route[2], route[0]}
		}
		failed = append(failed, runTool("ip", append([]string{"route", "delete"}, route...)...))
	}
	return errors.Join(failed...)
}

// removeVeths waits for the kernel to drop the veth pairs of dead pods and
// deletes those that someone else's process keeps.
func removeVeths() error {
	if waitUntil(5*time.Second, func() bool { return len(podLinks()) == 0 }) {
		return nil
	}
	var failed []error
	for _, link := range podLinks() {
		if err := runTool("ip", "link", "delete", link); err != nil {
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}

// podLinks are the host's veth devices to which a pod's address is routed.
func podLinks() []string {
	output, err := exec.Command("ip", "-4", "route", "show", "root", podNetwork).Output()
	if err != nil {
		return nil
	}
	return parsePodLinks(string(output))
}

// parsePodLinks reads the veth devices out of `ip route show`.
func parsePodLinks(routes string) []string {
	var links []string
	for line := range strings.Lines(routes) {
		fields := strings.Fields(line)
		for index, field := range fields[:max(0, len(fields)-1)] {
			if field == "dev" && strings.HasPrefix(fields[index+1], "veth") {
				links = append(links, fields[index+1])
			}
		}
	}
	return links
}

// removeAddresses removes the addresses on lo that carry our label.
func removeAddresses() error {
	var failed []error
	for _, address := range labelledAddresses() {
		failed = append(failed, runTool("ip", "address", "delete", address, "dev", "lo"))
	}
	return errors.Join(failed...)
}

// labelledAddresses lists the addresses on lo that carry our label, with their prefix length.
func labelledAddresses() []string {
	output, err := exec.Command("ip", "-4", "-o", "address", "show", "dev", "lo", "label", loLabel).Output()
	if err != nil {
		return nil // without iproute2 there are none of ours
	}
	var addresses []string
	for line := range strings.Lines(string(output)) {
		if fields := strings.Fields(line); len(fields) > 3 {
			addresses = append(addresses, fields[3])
		}
	}
	return addresses
}

// runTool runs a system tool; its words are part of the error.
func runTool(name string, arguments ...string) error {
	if output, err := exec.Command(name, arguments...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(arguments, " "), err, bytes.TrimSpace(output))
	}
	return nil
}

// render fills a template.
func render(text string, values any) ([]byte, error) {
	parsed, err := template.New("").Option("missingkey=error").Parse(text)
	if err != nil {
		return nil, err
	}
	var output bytes.Buffer
	err = parsed.Execute(&output, values)
	return output.Bytes(), err
}
