#!/bin/sh
# Makes the Python environment in which the tests run the examples and schemathesis, and prints where it is. It is made anew when the
# pinned versions change; two callers at once wait for each other. Arguments: none. Exit 1 when Python or a package is missing.
set -eu
cd "$(dirname "$0")/.."
venv=target/test-venv
wanted=examples/python/requirements.txt
mkdir -p target
exec 9>target/test-venv.lock
flock 9
if ! cmp -s "$wanted" "$venv/made-from.txt"; then
    rm -rf "$venv"
    python3 -m venv "$venv" >&2
    "$venv/bin/pip" install --quiet --disable-pip-version-check -r "$wanted" >&2
    cp "$wanted" "$venv/made-from.txt"
fi
echo "$PWD/$venv"
