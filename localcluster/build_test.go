// SPDX-FileCopyrightText: The Ullage Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// copySource makes a copy of the components' modules that a test may change.
func copySource(t *testing.T) string {
	t.Helper()
	source := t.TempDir()
	if err := os.CopyFS(filepath.Join(source, "components"), os.DirFS("components")); err != nil {
		t.Fatal(err)
	}
	return source
}

func TestKeyOfAComponentChangesWithAllThatItIsBuiltFrom(t *testing.T) {
	source := copySource(t)
	for _, component := range components {
		key, err := component.key(source)
		if err != nil {
			t.Fatal(err)
		}
		if again, _ := component.key(source); again != key {
			t.Errorf("%s: %s, then %s", component.name, key, again)
		}
		tagged := component
		tagged.tags = "other"
		if changed, _ := tagged.key(source); changed == key {
			t.Errorf("%s: other build tags give the same key", component.name)
		}
		for _, file := range []string{"go.mod", "go.sum"} {
			path := filepath.Join(source, "components", component.name, file)
			before, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, append(before, "// \n"...), 0o644); err != nil {
				t.Fatal(err)
			}
			if changed, _ := component.key(source); changed == key {
				t.Errorf("%s: another %s gives the same key", component.name, file)
			}
			if err := os.WriteFile(path, before, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestBinariesAreStampedWithTheirPinnedVersion(t *testing.T) {
	found, err := findComponents([]string{"kubernetes"})
	if err != nil {
		t.Fatal(err)
	}
	requirements, err := found[0].requirements(".")
	if err != nil {
		t.Fatal(err)
	}
	flags := strings.Join(found[0].flags(requirements), " ")
	version := requirements["k8s.io/kubernetes"]
	for _, want := range []string{"gitVersion=" + version, "gitMajor=1", "gitMinor=" + strings.Split(version, ".")[1]} {
		if !strings.Contains(flags, want) {
			t.Errorf("no %s in %s", want, flags)
		}
	}
}

// What these components share is compiled once, because Go caches it by version.
func TestComponentsShareModulesOfOneVersion(t *testing.T) {
	type use struct{ component, version string }
	seen := map[string]use{}
	for _, name := range []string{"containerd", "coredns", "helm"} {
		raw, err := os.ReadFile(filepath.Join("components", name, "go.mod"))
		if err != nil {
			t.Fatal(err)
		}
		for module, version := range parseRequirements(string(raw)) {
			if first, known := seen[module]; known && first.version != version {
				t.Errorf("%s: %s in %s, %s in %s", module, first.version, first.component, version, name)
			}
			seen[module] = use{name, version}
		}
	}
}

func TestUnknownComponentIsRefusedWithTheKnownOnes(t *testing.T) {
	if _, err := findComponents([]string{"kwok", "docker"}); err == nil || !strings.Contains(err.Error(), "kubeconform") {
		t.Errorf("got %v", err)
	}
}

func TestProgramsOfOlderVersionsHaveTheirNames(t *testing.T) {
	for name, want := range map[string]string{
		"kubernetes": "kubernetes", "kubernetes-1.34": "kubernetes", "nvidia-cdi-1.17": "nvidia-cdi",
		"kueue": "kueue", "trainer": "trainer-controller-manager", "runc": "runc",
	} {
		for _, c := range components {
			if c.name != name {
				continue
			}
			if got, err := c.builtName("."); err != nil || got != want {
				t.Errorf("%s: %q, %v; want %q", name, got, err, want)
			}
		}
	}
}
