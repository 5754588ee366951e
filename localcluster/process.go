// SPDX-FileCopyrightText: The Ullage Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// ownerVariable marks every process that a cluster starts, so that `down`
// finds them without any record; children such as shims inherit it, containers do not.
const ownerVariable = "LOCALCLUSTER_OWNER"

// nodesVariable marks the processes of a cluster with nodes, of which a network
// namespace has one.
const nodesVariable = "LOCALCLUSTER_NODES"

// Process is one program of a cluster and what is needed to start it again.
type Process struct {
	Name      string   `json:"name"`
	Node      string   `json:"node,omitempty"`
	Argv      []string `json:"argv"`
	Log       string   `json:"log"`
	PID       int      `json:"pid"`
	StartTick uint64   `json:"start_tick"`
	Stopped   bool     `json:"stopped"`
}

// title names the process for people.
func (p *Process) title() string {
	if p.Node == "" {
		return p.Name
	}
	return p.Name + " of " + p.Node
}

// alive says whether this very process still runs; a reused id does not count.
func (p *Process) alive() bool {
	if p.PID <= 0 {
		return false
	}
	tick, running := startTick(p.PID)
	return running && tick == p.StartTick
}

// startTick returns when a process started, in clock ticks since boot, and
// whether it runs (a zombie does not).
func startTick(pid int) (uint64, bool) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, false
	}
	return parseStat(string(raw))
}

// parseStat reads state and start time of /proc/PID/stat; the name in
// parentheses may itself hold spaces and parentheses.
func parseStat(stat string) (uint64, bool) {
	end := strings.LastIndexByte(stat, ')')
	if end < 0 {
		return 0, false
	}
	fields := strings.Fields(stat[end+1:])
	if len(fields) < 20 || fields[0] == "Z" || fields[0] == "X" {
		return 0, false
	}
	tick, err := strconv.ParseUint(fields[19], 10, 64)
	return tick, err == nil
}

// start runs a process and records it. One with a node starts in the mount
// namespace of that node.
func (s *State) start(process *Process) error {
	argv := process.Argv
	if process.Node != "" {
		node := s.node(process.Node)
		pid := s.namespacePID(node)
		if pid == 0 {
			return fmt.Errorf("%s: nothing of %s is left to hold its mount namespace: run `localcluster down` and `up`", process.title(), process.Node)
		}
		argv = append([]string{"nsenter", "--mount=/proc/" + strconv.Itoa(pid) + "/ns/mnt", "--"}, argv...)
	}
	command, err := s.command(process, argv)
	if err != nil {
		return err
	}
	if err := command.Start(); err != nil {
		return fmt.Errorf("start %s: %w", process.title(), err)
	}
	return s.record(process, command)
}

// command prepares a program in a session of its own, with our environment and log.
func (s *State) command(process *Process, argv []string) (*exec.Cmd, error) {
	if err := os.MkdirAll(filepath.Dir(process.Log), 0o755); err != nil {
		return nil, err
	}
	log, err := os.OpenFile(process.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	command := exec.Command(argv[0], argv[1:]...)
	command.Dir = "/"
	command.Stdout, command.Stderr = log, log
	command.Env = []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME=" + string(s.home),
		ownerVariable + "=" + string(s.home),
	}
	if len(s.Nodes) > 0 {
		command.Env = append(command.Env, nodesVariable+"="+strconv.Itoa(len(s.Nodes)))
	}
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return command, nil
}

// record notes a started program and keeps it from becoming a zombie of ours.
func (s *State) record(process *Process, command *exec.Cmd) error {
	process.PID, process.Stopped = command.Process.Pid, false
	process.StartTick, _ = startTick(process.PID)
	go command.Wait() //nolint:errcheck // its end is seen through alive
	if closer, ok := command.Stdout.(io.Closer); ok {
		closer.Close()
	}
	if index := slices.IndexFunc(s.Processes, func(known *Process) bool {
		return known.Name == process.Name && known.Node == process.Node
	}); index >= 0 {
		s.Processes[index] = process
	} else {
		s.Processes = append(s.Processes, process)
	}
	return s.save()
}

// stop ends a process: politely first unless kill is set, then by force.
func (p *Process) stop(kill bool, patience time.Duration) error {
	if !p.alive() {
		return nil
	}
	signal := syscall.SIGTERM
	if kill {
		signal = syscall.SIGKILL
	}
	if err := syscall.Kill(p.PID, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("stop %s: %w", p.title(), err)
	}
	if waitUntil(patience, func() bool { return !p.alive() }) {
		return nil
	}
	if err := syscall.Kill(p.PID, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("kill %s: %w", p.title(), err)
	}
	if !waitUntil(10*time.Second, func() bool { return !p.alive() }) {
		return fmt.Errorf("%s (pid %d) does not end even after SIGKILL", p.title(), p.PID)
	}
	return nil
}

// ownedPIDs lists the running processes that carry the mark of a cluster at home.
func ownedPIDs(home Home) []int {
	return pidsWhere(func(_ int, environment map[string]string) bool { return environment[ownerVariable] == string(home) })
}

// pidsWhere lists the running processes that satisfy a condition on their
// number and environment.
func pidsWhere(condition func(pid int, environment map[string]string) bool) []int {
	var found []int
	files, _ := filepath.Glob("/proc/[0-9]*/environ") // the only error is a bad pattern
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			continue // ended meanwhile, or another user's
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil || pid == os.Getpid() || !condition(pid, parseEnvironment(string(raw))) {
			continue
		}
		if _, running := startTick(pid); running {
			found = append(found, pid)
		}
	}
	return found
}

// parseEnvironment reads /proc/PID/environ.
func parseEnvironment(raw string) map[string]string {
	variables := map[string]string{}
	for entry := range strings.SplitSeq(raw, "\x00") {
		if name, value, found := strings.Cut(entry, "="); found {
			variables[name] = value
		}
	}
	return variables
}

// waitUntil polls a condition until it holds or the time is over.
func waitUntil(limit time.Duration, condition func() bool) bool {
	deadline := time.Now().Add(limit)
	for !condition() {
		if time.Now().After(deadline) {
			return false
		}
		time.Sleep(50 * time.Millisecond)
	}
	return true
}

// logTail returns the last lines of a process's log.
func logTail(path string, lines int) string {
	raw, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	all := strings.Split(strings.TrimRight(string(raw), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
