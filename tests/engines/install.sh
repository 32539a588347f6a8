#!/usr/bin/env bash
# install.sh ENGINE VENV: an environment with one engine (sglang or vllm) and Glassgate, for the tests in this folder.
# Two to four minutes and 2.7 GB an engine. Everything comes from the package index pip is set up with, and from here.
set -euo pipefail
engine=${1:?the engine: sglang or vllm}
venv=${2:?the folder of the virtual environment}
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
constraints="$here/requirements/torch.txt"
pause=${ENGINE_RETRY_SECONDS:-20}

pip_once() { "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --constraint "$constraints" "$@"; }
pip() { # a registry has its bad moments: tried twice
  pip_once "$@" && return
  echo "pip install $* failed; once more in $pause s" >&2
  sleep "$pause"
  pip_once "$@"
}

"${ENGINE_PYTHON:-python3.11}" -m venv "$venv"
pip torch
pip --requirement "$here/requirements/$engine.txt"
# These would bring builds for a GPU with them, so they come without what they ask for; the list above has it.
pip --no-deps --requirement "$here/requirements/$engine-alone.txt"
case $engine in
  sglang) pip --no-deps "$here/support/torchvision_names" "$here/support/sglang_cpu" ;;
  # One that does not fit torch breaks transformers, and no image is served here.
  vllm) "$venv/bin/python" -m pip uninstall --quiet --yes torchvision torchaudio >/dev/null 2>&1 || true ;;
esac
# As an operator does it: into the engine's own environment.
pip --editable "$root" 'pytest>=8.3,<9' 'hypothesis>=6.100'
"$venv/bin/python" "$here/support/tiny_model.py" "$venv/tiny-model"
