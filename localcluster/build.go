// SPDX-FileCopyrightText: The Ullage Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// progressInterval is the time between two lines about a build that still runs.
const progressInterval = 15 * time.Second

// buildAll compiles the components that the cache lacks and returns the path of
// every program by name.
func buildAll(names []string) (map[string]string, error) {
	source, err := sourceDir()
	if err != nil {
		return nil, err
	}
	cache, err := cacheDir()
	if err != nil {
		return nil, err
	}
	wanted, err := findComponents(names)
	if err != nil {
		return nil, err
	}
	programs := map[string]string{}
	for index, component := range wanted {
		dir, err := component.ensure(source, cache, fmt.Sprintf("%d of %d", index+1, len(wanted)))
		if err != nil {
			return nil, err
		}
		for _, program := range component.programs {
			programs[program] = filepath.Join(dir, program)
		}
	}
	return programs, nil
}

// ensure returns the cache folder of a component; it compiles it if that is missing.
func (c component) ensure(source, cache, position string) (string, error) {
	key, err := c.key(source)
	if err != nil {
		return "", err
	}
	final := filepath.Join(cache, c.name+"-"+key)
	if _, err := os.Stat(final); err == nil {
		return final, nil
	}
	unlock, err := lockCache(cache, c.name)
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(final); err == nil {
		return final, nil // another command built it while this one waited
	}
	if err := removeKilledBuilds(cache, c.name); err != nil {
		return "", err
	}
	temporary, err := os.MkdirTemp(cache, buildingPrefix(c.name))
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(temporary)
	if err := c.compile(source, temporary, position); err != nil {
		return "", err
	}
	if err := os.Chmod(temporary, 0o755); err != nil {
		return "", err
	}
	return final, os.Rename(temporary, final)
}

// buildingPrefix begins the names of the folders in which a component is built.
func buildingPrefix(name string) string { return ".building-" + name + "-" }

// removeKilledBuilds deletes the folders of builds of a component that did not
// end; its lock must be held.
func removeKilledBuilds(cache, name string) error {
	left, err := filepath.Glob(filepath.Join(cache, buildingPrefix(name)+"*"))
	for _, dir := range left {
		err = errors.Join(err, os.RemoveAll(dir))
	}
	return err
}

// compile runs `go build` for a component and says how it goes.
func (c component) compile(source, destination, position string) error {
	if err := checkGo(); err != nil {
		return err
	}
	requirements, err := c.requirements(source)
	if err != nil {
		return err
	}
	progress("building %s %s (%s): about %s on two cores the first time", c.name, requirements[c.module], position, c.expected)
	arguments := append([]string{"build", "-o", destination + "/"}, c.flags(requirements)...)
	command := exec.Command("go", append(arguments, c.target)...)
	command.Dir = filepath.Join(source, "components", c.name)
	command.Env = c.environ()
	begin := time.Now()
	if err := runWithProgress(command, c.name); err != nil {
		return err
	}
	if len(c.programs) == 1 {
		given, err := c.builtName(source)
		if err != nil {
			return err
		}
		if err := renameProgram(destination, given, c.programs[0]); err != nil {
			return err
		}
	}
	if c.extra != nil {
		if err := c.extra(c, source, destination); err != nil {
			return err
		}
	}
	for _, program := range c.programs {
		if _, err := os.Stat(filepath.Join(destination, program)); err != nil {
			return fmt.Errorf("the build of %s gave no %s: %w", c.name, program, err)
		}
	}
	progress("built %s in %s", c.name, roundDuration(time.Since(begin)))
	return nil
}

// renameProgram gives a program its name when `go build` chose another one.
func renameProgram(dir, from, to string) error {
	err := os.Rename(filepath.Join(dir, from), filepath.Join(dir, to))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it has its name already
	}
	return err
}

// runWithProgress runs a command, prints a line now and then, and returns what
// it wrote if it fails.
func runWithProgress(command *exec.Cmd, what string) error {
	output, err := os.CreateTemp("", "localcluster-build-")
	if err != nil {
		return err
	}
	defer os.Remove(output.Name())
	defer output.Close()
	command.Stdout, command.Stderr = output, output
	if err := command.Start(); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- command.Wait() }()
	begin, ticker := time.Now(), time.NewTicker(progressInterval)
	defer ticker.Stop()
	for {
		select {
		case err := <-done:
			if err != nil {
				return fmt.Errorf("building %s failed (%w):\n%s", what, err, logTail(output.Name(), 20))
			}
			return nil
		case <-ticker.C:
			progress("  still building %s, %s so far%s", what, roundDuration(time.Since(begin)), downloadNote(output.Name()))
		}
	}
}

// downloadNote says how many modules were fetched, which is what a slow network shows.
func downloadNote(path string) string {
	raw, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	if count := strings.Count(string(raw), "go: downloading "); count > 0 {
		return fmt.Sprintf(", %d modules downloaded", count)
	}
	return ""
}

// lockCache makes concurrent builds of one component wait for one another.
func lockCache(cache, name string) (func(), error) {
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(filepath.Join(cache, "."+name+".lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		progress("another command is building %s: waiting for it", name)
		if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
			file.Close()
			return nil, err
		}
	}
	return func() { file.Close() }, nil
}

var goVersion = regexp.MustCompile(`go(\d+)\.(\d+)`)

// checkGo refuses a Go toolchain that cannot build the pinned modules.
func checkGo() error {
	output, err := exec.Command("go", "version").Output()
	if err != nil {
		return fmt.Errorf("needs Go 1.26 or newer to compile Kubernetes: install it and put its bin folder in PATH (%w)", err)
	}
	found := goVersion.FindStringSubmatch(string(output))
	if found == nil {
		return nil // a development version: let the compiler judge
	}
	major, _ := strconv.Atoi(found[1]) // digits by the pattern
	minor, _ := strconv.Atoi(found[2])
	if major < 1 || (major == 1 && minor < 26) {
		return fmt.Errorf("needs Go 1.26 or newer, found %s: install a newer one and put its bin folder in PATH", found[0])
	}
	return nil
}

// copyStages takes the stages that make KWOK's nodes and pods live from its
// module, joined into one file.
func copyStages(c component, source, destination string) error {
	patterns := []string{"pod/fast/pod-*.yaml", "node/fast/node-*.yaml", "node/heartbeat-with-lease/node-*.yaml"}
	for index := range patterns {
		patterns[index] = "kustomize/stage/" + patterns[index]
	}
	return copyDocuments(c, source, patterns, filepath.Join(destination, "stages.yaml"))
}

// copyKarpenterCRDs takes the definitions of Karpenter's objects from its module, joined into one file.
func copyKarpenterCRDs(c component, source, destination string) error {
	patterns := []string{"pkg/apis/crds/*.yaml", "kwok/apis/crds/*.yaml"}
	return copyDocuments(c, source, patterns, filepath.Join(destination, "crds.yaml"))
}

// manifests takes the definitions of a controller's objects and its webhooks from its module.
func manifests(crds, webhooks string) func(c component, source, destination string) error {
	return func(c component, source, destination string) error {
		if err := copyDocuments(c, source, []string{crds}, filepath.Join(destination, "crds.yaml")); err != nil {
			return err
		}
		return copyDocuments(c, source, []string{webhooks}, filepath.Join(destination, "webhooks.yaml"))
	}
}

// copyDocuments joins files of a component's module into one.
func copyDocuments(c component, source string, patterns []string, destination string) error {
	files, _, err := moduleFiles(c, source, patterns)
	if err != nil {
		return err
	}
	var documents []string
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		documents = append(documents, string(content))
	}
	return os.WriteFile(destination, []byte(strings.Join(documents, "\n---\n")), 0o644)
}

// copyFiles takes files of a component's module, at their paths in it, into a folder beside its programs.
func copyFiles(folder string, patterns ...string) func(c component, source, destination string) error {
	return func(c component, source, destination string) error {
		files, module, err := moduleFiles(c, source, patterns)
		if err != nil {
			return err
		}
		for _, file := range files {
			content, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			path := filepath.Join(destination, folder, strings.TrimPrefix(file, module))
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				return err
			}
			if err := os.WriteFile(path, content, 0o644); err != nil {
				return err
			}
		}
		return nil
	}
}

// moduleFiles finds files of a component's module, and the folder of the module.
func moduleFiles(c component, source string, patterns []string) (files []string, module string, err error) {
	command := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", c.module)
	command.Dir = filepath.Join(source, "components", c.name)
	command.Env = c.environ()
	output, err := command.Output()
	if err != nil {
		return nil, "", fmt.Errorf("find the module %s: %w", c.module, err)
	}
	module = strings.TrimSpace(string(output))
	for _, pattern := range patterns {
		found, err := filepath.Glob(filepath.Join(module, pattern))
		if err != nil {
			return nil, "", err
		}
		if len(found) == 0 {
			return nil, "", fmt.Errorf("%s holds no %s", c.module, pattern)
		}
		files = append(files, found...)
	}
	return files, module, nil
}

// progress tells the user on standard error what is going on.
func progress(format string, arguments ...any) {
	fmt.Fprintf(os.Stderr, "localcluster: "+format+"\n", arguments...)
}

// roundDuration prints whole seconds.
func roundDuration(d time.Duration) string { return d.Round(time.Second).String() }
