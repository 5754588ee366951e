// SPDX-FileCopyrightText: The Ullage Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"

	_ "embed"
)

// pauseImage is the image of the process that holds a pod's namespaces.
const pauseImage = "localcluster.local/pause:1"

//go:embed files/pause.c
var pauseSource []byte

// ensurePause returns the archive of the pause image; it compiles and packs it
// if the cache lacks it.
func ensurePause() (string, error) {
	archive, err := pauseArchive()
	if err != nil || pauseBuilt() {
		return archive, err
	}
	unlock, err := lockCache(filepath.Dir(archive), "pause")
	if err != nil {
		return "", err
	}
	defer unlock()
	if pauseBuilt() {
		return archive, nil // another command built it while this one waited
	}
	dir, err := os.MkdirTemp("", "localcluster-pause-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	program := filepath.Join(dir, "pause")
	compiler := exec.Command("gcc", "-Os", "-s", "-static", "-Wall", "-Werror", "-x", "c", "-o", program, "-")
	compiler.Stdin = bytes.NewReader(pauseSource)
	if output, err := compiler.CombinedOutput(); err != nil {
		return "", fmt.Errorf("compile the pause program: %w: %s", err, output)
	}
	content, err := os.ReadFile(program)
	if err != nil {
		return "", err
	}
	var packed bytes.Buffer
	if err := writeOCIArchive(&packed, pauseImage, []imageFile{{"pause", content, 0o755}}, []string{"/pause"}); err != nil {
		return "", err
	}
	return archive, writeFile(archive, packed.Bytes(), 0o644)
}

// pauseArchive is where the cache has the pause image.
func pauseArchive() (string, error) {
	cache, err := cacheDir()
	sum := sha256.Sum256(append([]byte(runtime.GOARCH+pauseImage), pauseSource...))
	return filepath.Join(cache, "pause-"+hex.EncodeToString(sum[:8])+".tar"), err
}

// pauseBuilt says whether the cache has the pause image.
func pauseBuilt() bool {
	archive, err := pauseArchive()
	if err != nil {
		return false
	}
	_, err = os.Stat(archive)
	return err == nil
}

// loadImage imports an OCI or Docker archive into the containerd of every node.
func (s *State) loadImage(archive string) error {
	if _, err := os.Stat(archive); err != nil {
		return err
	}
	if len(s.Nodes) == 0 {
		return errors.New("this cluster has no real nodes, so there is nothing to load an image into")
	}
	failed := make([]error, len(s.Nodes))
	var group sync.WaitGroup
	for index, node := range s.Nodes {
		group.Go(func() { failed[index] = s.importImage(node, archive) })
	}
	group.Wait()
	return errors.Join(failed...)
}

// importImage imports an archive into one node.
func (s *State) importImage(node *Node, archive string) error {
	output, err := exec.Command(s.Binaries["ctr"], "--address", node.Socket, "--namespace", "k8s.io",
		"images", "import", "--snapshotter", snapshotter(string(s.home)), archive).CombinedOutput()
	if err != nil {
		return fmt.Errorf("load %s into %s: %w: %s", archive, node.Name, err, strings.TrimSpace(string(output)))
	}
	return nil
}
