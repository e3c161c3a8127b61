#!/usr/bin/env bash
# Makes an environment of its own, then runs every check. Extra arguments go to pytest. Needs Python 3.11 or later; no GPU, no hub.
set -euo pipefail
cd "$(dirname "$0")/.."
export DEBIAN_FRONTEND=noninteractive

updated=""
# Debian packages, where we may install them. What is missing afterwards is said, and the tests that need it say so again.
debian() {
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
        echo "note: not installing $*: that needs root and apt-get" >&2
        return 0
    fi
    if [ -z "$updated" ]; then
        apt-get update -qq </dev/null || true
        updated=yes
    fi
    apt-get install -qq -y --no-install-recommends "$@" </dev/null >/dev/null || echo "note: could not install $*" >&2
}

command -v python3 >/dev/null || debian python3
python3 -c 'import ensurepip, venv' 2>/dev/null || debian python3-venv
command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || debian chromium
command -v fc-list >/dev/null || debian fontconfig
fc-list :lang=zh 2>/dev/null | grep -q . || debian fonts-noto-cjk

env=.venv-tests
"$env/bin/python" -c 'import pip' 2>/dev/null || python3 -m venv --clear "$env"
"$env/bin/python" -m pip install --quiet --progress-bar off --disable-pip-version-check -r tests/requirements.txt </dev/null

"$env/bin/ruff" check .
"$env/bin/ruff" format --check --quiet . || { echo "run: ruff format ." >&2; exit 1; }
exec "$env/bin/python" -m pytest -q "$@" </dev/null
