#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
#
# Server-side apply of an object that has lost its last field.
#
# One might think: a controller that applies "totals: {}" gets an empty object, as it does the first
# time, and as it gets an empty list from "nodes: []".
#
# Seen with structured-merge-diff 6.4.2, the library with which API servers merge: when the manager's
# earlier apply had fields in the object and the next one states the object without any, the merged
# value is null, not {}. Where the schema of a custom resource says "type: object", the API server
# refuses the whole request with 422 (null ... must be of type object), every time that it is sent,
# although each of the two bodies is valid and either can be applied to a new object. A list that is
# emptied in the same way goes without a trace. So a status needs a field that is always written in
# each object that it always writes, or has to leave the object out when it has no fields.
set -euo pipefail
folder=$(mktemp -d)
trap 'chmod -R u+w "$folder"; rm -rf "$folder"' EXIT
mkdir "$folder/module" && cd "$folder/module"

cat >go.mod <<'MOD'
module example.test/applied

go 1.24

require sigs.k8s.io/structured-merge-diff/v6 v6.4.2
MOD
cat >main.go <<'GO'
package main

import (
	"fmt"

	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/merge"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

const schema = `types:
- name: status
  map:
    fields:
    - name: phase
      type: {scalar: string}
    - name: totals
      type:
        map:
          fields:
          - name: seconds
            type: {scalar: numeric}
    - name: nodes
      type: {list: {elementType: {scalar: string}, elementRelationship: associative}}
`

type same struct{}

func (same) Convert(object *typed.TypedValue, _ fieldpath.APIVersion) (*typed.TypedValue, error) {
	return object, nil
}
func (same) IsMissingVersionError(error) bool { return false }

func main() {
	parser, err := typed.NewParser(schema)
	if err != nil {
		panic(err)
	}
	builder := merge.UpdaterBuilder{Converter: same{}}
	updater := builder.BuildUpdater()
	live, _ := parser.Type("status").FromYAML("{}")
	managers := fieldpath.ManagedFields{}
	for _, applied := range []typed.YAMLObject{
		"{phase: Running, totals: {}}",
		"{phase: Running, totals: {seconds: 3}, nodes: [a]}",
		"{phase: Running, totals: {}, nodes: []}",
	} {
		object, err := parser.Type("status").FromYAML(applied)
		if err != nil {
			panic(err)
		}
		merged, owners, err := updater.Apply(live, object, "v1", managers, "controller", true)
		if err != nil {
			panic(err)
		}
		if merged != nil {
			live = merged
		}
		managers = owners
		fmt.Printf("apply %-52s -> %v\n", applied, live.AsValue().Unstructured())
	}
}
GO
export GOPATH="$folder/go" GOFLAGS=-mod=mod
go mod tidy >/dev/null 2>&1
seen=$(go run .)
echo "$seen"
case $(tail -n 1 <<<"$seen") in
*"totals:<nil>]") echo "as described: an object that lost its last field is merged to null" ;;
*) echo "this has changed" && exit 1 ;;
esac
