#!/usr/bin/env bash
# run.sh [ENGINE...]: the end-to-end tests of each engine (all by default), each in an environment of its own under
# ENGINES (.engines). An engine for which this machine has no room or no Python 3.11 is said to be left out, loudly;
# whatever else goes wrong fails, once the other engines have had their turn.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
engines=${ENGINES:-$root/.engines}
least_gb=12
minutes=${ENGINE_MINUTES:-40} # for the tests of one engine, so that a hanging one ends before CI does
left_out=()
failed=()

say() { printf '== %s\n' "$*" >&2; }

leave_out() { # ENGINE WHY
  printf '\n######## NOT TESTED: %s\n######## %s\n\n' "$1" "$2" >&2
  left_out+=("$1")
}

fail() { # ENGINE WHY
  printf '\n######## FAILED: %s\n######## %s\n\n' "$1" "$2" >&2
  failed+=("$1")
}

find_python() { # the first Python 3.11 there is
  local each
  for each in ${ENGINE_PYTHON:-python3.11 python3 python}; do
    if "$each" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null; then
      echo "$each"
      return
    fi
  done
  return 1
}

is_ready() { # VENV: installed, from what install.sh takes as it stands here now
  [ -e "$1/.ready" ] &&
    [ -z "$(find "$here"/requirements "$here"/support/{sglang_cpu,torchvision_names,tiny_model.py} "$here/install.sh" \
      "$root/pyproject.toml" -name __pycache__ -prune -o -newer "$1/.ready" -type f -print -quit)" ]
}

install() { # ENGINE VENV
  local engine=$1 venv=$2 log=$engines/$1-install.log python room_gb began=$SECONDS
  if ! python=$(find_python); then
    leave_out "$engine" "no Python 3.11, which its packages are built for, under ${ENGINE_PYTHON:-python3.11, python3 or python}; set ENGINE_PYTHON"
    return 1
  fi
  mkdir -p "$engines"
  rm -rf "$venv"
  room_gb=$(($(df --output=avail -k "$engines" | tail -1) / 1048576))
  if [ "$room_gb" -lt "$least_gb" ]; then
    leave_out "$engine" "$engines has $room_gb GiB free, and an engine wants $least_gb; set ENGINES to another folder"
    return 1
  fi
  say "$engine: installing into $venv (minutes; $log)"
  if ! ENGINE_PYTHON=$python "$here/install.sh" "$engine" "$venv" >"$log" 2>&1; then
    tail -n 40 "$log" >&2
    fail "$engine" "it could not be installed; the end of $log stands above"
    return 1
  fi
  touch "$venv/.ready"
  say "$engine: installed in $((SECONDS - began)) s, $(du -sh "$venv" | cut -f1)"
}

run() { # ENGINE
  local engine=$1 venv=$engines/$1 began code=0
  is_ready "$venv" || install "$engine" "$venv" || return 0
  began=$SECONDS
  say "$engine: testing"
  (cd "$root" && timeout --signal=INT --kill-after=60 "${minutes}m" \
    "$venv/bin/python" -m pytest -c "$here/pytest.ini" --rootdir "$root" "$here/$engine") || code=$?
  case $code in
    0) say "$engine: passed in $((SECONDS - began)) s" ;;
    124 | 137) fail "$engine" "its tests took longer than $minutes minutes; set ENGINE_MINUTES for a slower machine" ;;
    *) fail "$engine" "its tests ended with $code after $((SECONDS - began)) s" ;;
  esac
}

[ $# -gt 0 ] || set -- sglang vllm
for engine; do run "$engine"; done
if [ ${#left_out[@]} -gt 0 ]; then
  printf '\n######## engines NOT TESTED: %s\n' "${left_out[*]}" >&2
fi
if [ ${#failed[@]} -gt 0 ]; then
  printf '\n######## engines that FAILED: %s\n' "${failed[*]}" >&2
  exit 1
fi
