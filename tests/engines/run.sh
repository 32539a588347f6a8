#!/usr/bin/env bash
# run.sh [ENGINE...]: the end-to-end tests of each engine (all by default), each in an environment of its own under
# ENGINES (.engines). An engine that cannot be installed here is said to be left out, loudly; a failing test fails.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
engines=${ENGINES:-$root/.engines}
least_kb=$((12 * 1024 * 1024))
left_out=()

leave_out() { # ENGINE WHY
  printf '\n######## NOT TESTED: %s\n######## %s\n\n' "$1" "$2" >&2
  left_out+=("$1")
}

python_fits() { "$1" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null; }

run() { # ENGINE
  local engine=$1 venv=$engines/$1 ready=$engines/$1/.ready
  if [ ! -e "$ready" ] || [ -n "$(find "$here/requirements" "$here/support" "$here/install.sh" "$root/pyproject.toml" -newer "$ready" -print -quit)" ]; then
    local python=${ENGINE_PYTHON:-python3.11}
    if ! python_fits "$python"; then
      leave_out "$engine" "$python is no Python 3.11, which its packages are built for; set ENGINE_PYTHON"
      return
    fi
    mkdir -p "$engines"
    local room_kb
    room_kb=$(df --output=avail -k "$engines" | tail -1)
    if [ ! -e "$ready" ] && [ "$room_kb" -lt "$least_kb" ]; then
      leave_out "$engine" "$engines has $((room_kb / 1048576)) GiB free, and an engine wants 12; set ENGINES to another folder"
      return
    fi
    echo "installing $engine into $venv" >&2
    rm -rf "$venv"
    ENGINE_PYTHON=$python "$here/install.sh" "$engine" "$venv"
    touch "$ready"
  fi
  (cd "$root" && "$venv/bin/python" -m pytest -c "$here/pytest.ini" --rootdir "$root" "$here/$engine")
}

[ $# -gt 0 ] || set -- sglang vllm
for engine; do run "$engine"; done
if [ ${#left_out[@]} -gt 0 ]; then
  printf '\n######## engines not tested: %s\n' "${left_out[*]}" >&2
fi
