#!/bin/sh
# Makes sure that the programs which the tests run for real are there: installs them where it can, says what to install where
# it cannot. Arguments: none. Exit 1 when something is missing in the end.
set -eu

missing=""
need() { # program package
    # (A user's own PATH often lacks the folder where Debian puts servers.)
    PATH="$PATH:/usr/sbin" command -v "$1" >/dev/null 2>&1 || missing="$missing $2"
}
need redis-server redis-server
# The proxies whose recipes are tested (deploy/proxies).
need nginx nginx
need caddy caddy
need haproxy haproxy
# promtool comes with it.
need prometheus prometheus
# The examples in the documents and in --help.
need bash bash
need curl curl
# What a build says of its commit.
need git git
need python3 python3
# Debian has the module that makes environments in a package of its own.
python3 -c 'import ensurepip, venv' 2>/dev/null || missing="$missing python3-venv"
command -v chromium >/dev/null 2>&1 || command -v chromium-browser >/dev/null 2>&1 || missing="$missing chromium"

[ -z "$missing" ] && exit 0

as_root=""
if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null && as_root="sudo -n"
fi
if [ "$(id -u)" -eq 0 ] || [ -n "$as_root" ]; then
    echo "installing for the tests:$missing" >&2
    # shellcheck disable=SC2086 # both are lists of words
    if command -v apt-get >/dev/null 2>&1; then
        $as_root apt-get update -qq && DEBIAN_FRONTEND=noninteractive $as_root apt-get install -y -qq --no-install-recommends $missing >/dev/null && exit 0
    elif command -v dnf >/dev/null 2>&1; then
        $as_root dnf install -y -q $(echo "$missing" | sed 's/redis-server/redis/; s/ prometheus/ golang-github-prometheus/; s/python3-venv//') && exit 0
    elif command -v apk >/dev/null 2>&1; then
        $as_root apk add -q $(echo "$missing" | sed 's/redis-server/redis/; s/python3-venv//') && exit 0
    fi
fi
echo "error: the tests need programs that are not here:$missing" >&2
echo "hint: install them with your system's package manager, for example: sudo apt-get install$missing (macOS: brew install redis prometheus)" >&2
exit 1
