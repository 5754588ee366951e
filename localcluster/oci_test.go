// SPDX-FileCopyrightText: The Ullage Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"testing"
)

// readTar returns the files of a tar by name.
func readTar(t *testing.T, input io.Reader) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	archive := tar.NewReader(input)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		files[header.Name] = content
	}
}

// pointer is a descriptor as a reader of an image sees it.
type pointer struct {
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Annotations map[string]string `json:"annotations"`
}

// follow decodes the blob that a descriptor points at.
func follow(t *testing.T, files map[string][]byte, at pointer, into any) {
	t.Helper()
	content := blobOf(t, files, at)
	if err := json.Unmarshal(content, into); err != nil {
		t.Fatal(err)
	}
}

// blobOf returns the blob of a descriptor after checking size and digest.
func blobOf(t *testing.T, files map[string][]byte, at pointer) []byte {
	t.Helper()
	content, found := files["blobs/sha256/"+at.Digest[len("sha256:"):]]
	sum := sha256.Sum256(content)
	if !found || len(content) != at.Size || at.Digest != "sha256:"+hex.EncodeToString(sum[:]) {
		t.Fatalf("%s: found %v, %d bytes for %d, digest %x", at.Digest, found, len(content), at.Size, sum)
	}
	return content
}

func TestArchiveIsAnImageLayoutWhoseBlobsMatchTheirDigests(t *testing.T) {
	var first, second bytes.Buffer
	content := []imageFile{{"bin/one", []byte("content"), 0o755}}
	for _, output := range []*bytes.Buffer{&first, &second} {
		if err := writeOCIArchive(output, "example.com/name:1", content, []string{"/bin/one"}); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Error("equal input gives different archives")
	}
	files := readTar(t, &first)
	var layout struct {
		Version string `json:"imageLayoutVersion"`
	}
	if err := json.Unmarshal(files["oci-layout"], &layout); err != nil || layout.Version != "1.0.0" {
		t.Errorf("oci-layout: %+v, %v", layout, err)
	}
	var index struct{ Manifests []pointer }
	if err := json.Unmarshal(files["index.json"], &index); err != nil || len(index.Manifests) != 1 {
		t.Fatalf("index: %+v, %v", index, err)
	}
	if name := index.Manifests[0].Annotations["io.containerd.image.name"]; name != "example.com/name:1" {
		t.Errorf("name %q", name)
	}
	var manifest struct {
		Config pointer
		Layers []pointer
	}
	follow(t, files, index.Manifests[0], &manifest)
	var config struct {
		Config struct{ Entrypoint []string }
		RootFS struct {
			DiffIDs []string `json:"diff_ids"`
		}
	}
	follow(t, files, manifest.Config, &config)
	unpacked, err := gzip.NewReader(bytes.NewReader(blobOf(t, files, manifest.Layers[0])))
	if err != nil {
		t.Fatal(err)
	}
	layer, err := io.ReadAll(unpacked)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(layer)
	if want := "sha256:" + hex.EncodeToString(sum[:]); len(config.RootFS.DiffIDs) != 1 || config.RootFS.DiffIDs[0] != want {
		t.Errorf("diff_ids %v; want %s", config.RootFS.DiffIDs, want)
	}
	if got := readTar(t, bytes.NewReader(layer))["bin/one"]; string(got) != "content" {
		t.Errorf("layer holds %q", got)
	}
	if entry := config.Config.Entrypoint; len(entry) != 1 || entry[0] != "/bin/one" {
		t.Errorf("entrypoint %v", entry)
	}
}
