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
	"fmt"
	"io"
	"runtime"
	"time"
)

// imageFile is one file of an image.
type imageFile struct {
	path    string // without a leading slash
	content []byte
	mode    int64
}

// blob is a piece of an image that is addressed by its content.
type blob struct {
	mediaType string
	content   []byte
}

// digest is the address of the blob.
func (b blob) digest() string {
	sum := sha256.Sum256(b.content)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// descriptor points at the blob.
func (b blob) descriptor() object {
	return object{"mediaType": b.mediaType, "digest": b.digest(), "size": len(b.content)}
}

// writeOCIArchive writes an image of one layer as an OCI archive (image-spec
// 1.1, image layout in a tar). Equal input gives equal bytes.
func writeOCIArchive(output io.Writer, name string, files []imageFile, entrypoint []string) error {
	var layer bytes.Buffer
	if err := writeTar(&layer, files); err != nil {
		return err
	}
	diff := blob{content: layer.Bytes()}
	var packed bytes.Buffer
	compressor := gzip.NewWriter(&packed)
	if _, err := compressor.Write(layer.Bytes()); err != nil {
		return err
	}
	if err := compressor.Close(); err != nil {
		return err
	}
	layerBlob := blob{"application/vnd.oci.image.layer.v1.tar+gzip", packed.Bytes()}
	config, err := jsonBlob("application/vnd.oci.image.config.v1+json", object{
		"architecture": runtime.GOARCH,
		"os":           "linux",
		"config":       object{"Entrypoint": entrypoint},
		"rootfs":       object{"type": "layers", "diff_ids": []string{diff.digest()}},
	})
	if err != nil {
		return err
	}
	manifest, err := jsonBlob("application/vnd.oci.image.manifest.v1+json", object{
		"schemaVersion": 2,
		"mediaType":     "application/vnd.oci.image.manifest.v1+json",
		"config":        config.descriptor(),
		"layers":        []object{layerBlob.descriptor()},
	})
	if err != nil {
		return err
	}
	pointer := manifest.descriptor()
	// containerd takes the name from the first, other tools from the second.
	pointer["annotations"] = map[string]string{"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name}
	index, err := jsonBlob("", object{"schemaVersion": 2, "manifests": []object{pointer}})
	if err != nil {
		return err
	}
	archive := []imageFile{
		{"oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`), 0o644},
		{"index.json", index.content, 0o644},
	}
	for _, piece := range []blob{config, manifest, layerBlob} {
		archive = append(archive, imageFile{"blobs/sha256/" + piece.digest()[len("sha256:"):], piece.content, 0o644})
	}
	return writeTar(output, archive)
}

// jsonBlob encodes a value as a blob.
func jsonBlob(mediaType string, value any) (blob, error) {
	raw, err := json.Marshal(value)
	return blob{mediaType, raw}, err
}

// writeTar writes files that belong to root and are as old as the epoch.
func writeTar(output io.Writer, files []imageFile) error {
	archive := tar.NewWriter(output)
	for _, file := range files {
		header := &tar.Header{
			Name: file.path, Mode: file.mode, Size: int64(len(file.content)),
			ModTime: time.Unix(0, 0), Typeflag: tar.TypeReg, Format: tar.FormatPAX,
		}
		if err := archive.WriteHeader(header); err != nil {
			return fmt.Errorf("pack %s: %w", file.path, err)
		}
		if _, err := archive.Write(file.content); err != nil {
			return fmt.Errorf("pack %s: %w", file.path, err)
		}
	}
	return archive.Close()
}
