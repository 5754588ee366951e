// SPDX-FileCopyrightText: The Ullage Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// requirement is one thing that the system must have, with the Debian package
// that brings it.
type requirement struct {
	what    string
	pkg     string
	present func() bool
}

// onPath says whether a program can be found.
func onPath(program string) func() bool {
	return func() bool {
		_, err := exec.LookPath(program)
		return err == nil
	}
}

// runRequirements are needed to run real nodes.
var runRequirements = []requirement{
	{"ip", "iproute2", onPath("ip")},
	{"nft", "nftables", onPath("nft")},
	{"nsenter", "util-linux", onPath("nsenter")},
	{"mount", "mount", onPath("mount")},
}

// buildRequirements are needed to compile runc and the pause image.
var buildRequirements = []requirement{
	{"gcc", "gcc", onPath("gcc")},
	{"the static C library", "libc6-dev", hasStaticLibc},
	{"pkg-config", "pkg-config", onPath("pkg-config")},
	{"the headers of libseccomp", "libseccomp-dev", func() bool {
		return exec.Command("pkg-config", "--exists", "libseccomp").Run() == nil
	}},
}

// nodeRequirements are what nodes need of the system: to run them, and to compile
// what of theirs is not built yet.
func nodeRequirements(run bool) []requirement {
	var needed []requirement
	if run {
		needed = append(needed, runRequirements...)
	}
	if !builtBefore("runc") || !pauseBuilt() {
		needed = append(needed, buildRequirements...)
	}
	return needed
}

// hasStaticLibc asks the compiler where libc.a is; it echoes the bare name if it has none.
func hasStaticLibc() bool {
	output, err := exec.Command("gcc", "-print-file-name=libc.a").Output()
	return err == nil && strings.Contains(string(output), "/")
}

// missing returns the requirements that the system lacks.
func missing(requirements []requirement) []requirement {
	return slices.DeleteFunc(slices.Clone(requirements), func(r requirement) bool { return r.present() })
}

// installLine is the command that brings the missing packages.
func installLine(lacking []requirement) string {
	var packages []string
	for _, one := range lacking {
		packages = append(packages, one.pkg)
	}
	slices.Sort(packages)
	return "apt-get install -y --no-install-recommends " + strings.Join(slices.Compact(packages), " ")
}

// requireTools makes sure that the system has what it needs: it installs the
// rest if asked to, else it names the line that does.
func requireTools(requirements []requirement, install bool) error {
	lacking := missing(requirements)
	if len(lacking) == 0 {
		return nil
	}
	var names []string
	for _, one := range lacking {
		names = append(names, one.what)
	}
	line := installLine(lacking)
	if !install {
		return fmt.Errorf("this machine lacks %s: run `apt-get update && %s`, or give --install-deps", strings.Join(names, ", "), line)
	}
	if os.Geteuid() != 0 {
		return fmt.Errorf("--install-deps needs root; run `sudo apt-get update && sudo %s`", line)
	}
	for _, command := range []string{"apt-get update -q", line} {
		progress("running %s", command)
		words := strings.Fields(command)
		process := exec.Command(words[0], words[1:]...)
		process.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		process.Stdout, process.Stderr = os.Stderr, os.Stderr
		if err := process.Run(); err != nil {
			return fmt.Errorf("%s: %w", command, err)
		}
	}
	if lacking := missing(requirements); len(lacking) > 0 {
		return errors.New("still missing after the installation: " + lacking[0].what)
	}
	return nil
}
