#!/bin/sh
# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
#
# Regenerates the Python code of these messages. Generated code refuses a protobuf runtime that is
# older than its generator, so the oldest supported generator is used, in an environment of its
# own. `regenerate.sh --check` changes nothing and fails when the committed files differ.
set -eu

GENERATOR="grpcio-tools==1.71.0 setuptools<81"
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

python="${PYTHON:-python3}"
"$python" -m venv "$work/venv"
# shellcheck disable=SC2086
"$work/venv/bin/python" -m pip install --quiet --disable-pip-version-check $GENERATOR

mkdir "$work/out"
cd "$root"
"$work/venv/bin/python" -m grpc_tools.protoc -I . \
  --python_out="$work/out" --pyi_out="$work/out" ullage_katib/proto/*.proto
for made in $(cd "$work/out" && find . -type f | sort); do
  printf '%s\n%s\n' '# SPDX-FileCopyrightText: The Ullage Authors' \
    '# SPDX-License-Identifier: Apache-2.0' | cat - "$work/out/$made" > "$work/file"
  if [ "${1:-}" = "--check" ]; then
    diff -u "$root/$made" "$work/file"
  else
    cp "$work/file" "$root/$made"
  fi
done
