# Makes the checkout's virtual environment, or says in one sentence what is missing. Sourced by POSIX shells (dash, macOS's
# bash 3.2): `. .ci/venv.sh`, then `feval_venv "$root" [EXTRA]`, then use "$venv/bin/python".
#
# FEVAL_PYTHON  the Python to use, 3.11 or later (otherwise the first that serves, on PATH and where installers put it)
# FEVAL_VENV    the environment's folder (otherwise .venv in the checkout)
# FEVAL_LOCKED  set: the dependencies are those of .ci/locked.txt, each file checked against its hash, and nothing else is fetched;
#               uv installs them, itself one of them, many times faster than pip

feval_say() {
    printf '%s\n' "$*" >&2
}

feval_stop() {
    feval_say "feval: $*"
    exit 1
}

# A candidate is run, not only looked up: pyenv's shims and macOS's stubs exist without a Python behind them.
feval_serves() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' </dev/null >/dev/null 2>&1
}

feval_version() {
    "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' </dev/null 2>/dev/null
}

# Sets feval_python.
feval_find_python() {
    if [ -n "${FEVAL_PYTHON:-}" ]; then
        feval_serves "$FEVAL_PYTHON" ||
            feval_stop "FEVAL_PYTHON names $FEVAL_PYTHON, which is no Python 3.11 or later (it says: $(feval_version "$FEVAL_PYTHON" || echo nothing)). Name another, or unset it."
        feval_python=$FEVAL_PYTHON
        return
    fi
    for feval_python in python3 python3.14 python3.13 python3.12 python3.11 python \
        /opt/homebrew/bin/python3 /usr/local/bin/python3 /usr/bin/python3; do
        if feval_serves "$feval_python"; then return; fi
    done
    feval_found=$(feval_version python3) || feval_found=
    feval_stop "no Python 3.11 or later was found (python3 is ${feval_found:-missing}). Install one and run this again:
  macOS    brew install python, or the installer from python.org (the Python that comes with macOS's tools is 3.9)
  Debian   apt-get install -y python3 python3-venv (Debian 12 or later)
or name one that is elsewhere: FEVAL_PYTHON=/path/to/python3"
}

# The folder carries this mark, its maker's process id, from its first moment until its first installation is complete.
feval_mark() {
    { mkdir -p "$venv" && echo $$ >"$venv/feval-unfinished"; } || feval_stop "$venv cannot be written. Check the folder's permissions, or name another: FEVAL_VENV=/path/to/folder"
}

feval_has_pip() {
    "$venv/bin/python" -m pip --version </dev/null >/dev/null 2>&1
}

# Debian splits `venv` from Python: without python3-venv there is no ensurepip, and `python3 -m venv` leaves half an environment.
feval_make_venv() {
    feval_mark
    if "$feval_python" -m venv "$venv" </dev/null >/dev/null 2>&1 && feval_has_pip; then return; fi

    rm -rf "$venv" && feval_mark
    if "$feval_python" -m pip --version </dev/null >/dev/null 2>&1 &&
        "$feval_python" -m venv --without-pip "$venv" </dev/null >/dev/null 2>&1 &&
        "$feval_python" -m pip --python "$venv/bin/python" install --quiet pip </dev/null && feval_has_pip; then return; fi

    rm -rf "$venv" && feval_mark
    feval_package=python$(feval_version "$feval_python")-venv
    if command -v apt-get >/dev/null 2>&1; then
        [ "$(id -u)" = 0 ] ||
            feval_stop "this Python cannot make virtual environments. Install what it lacks and run this again: sudo apt-get install -y $feval_package"
        feval_say "feval: this Python cannot make virtual environments; installing $feval_package (apt-get install -y $feval_package)."
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$feval_package" </dev/null >/dev/null 2>&1 ||
            { apt-get update -qq </dev/null && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$feval_package" </dev/null >/dev/null; } ||
            feval_stop "apt-get could not install $feval_package. Its words are above; install the package and run this again."
    fi
    "$feval_python" -m venv "$venv" </dev/null ||
        feval_stop "$feval_python -m venv failed; its words are above. Name another Python with FEVAL_PYTHON=/path/to/python3, or install this one's venv and ensurepip modules."
}

# PIP_USER: a user's pip configuration may ask for --user, which no virtual environment allows.
feval_pip() {
    PIP_USER=0 PIP_DISABLE_PIP_VERSION_CHECK=1 "$venv/bin/python" -m pip install --quiet "$@" </dev/null
}

# Whether the environment is whole. Its Python may be gone (an upgrade), too old, or the making of it was interrupted.
feval_whole() {
    [ ! -e "$venv/feval-unfinished" ] && feval_serves "$venv/bin/python" && feval_has_pip
}

# feval_venv ROOT [EXTRA]: sets venv; afterwards "$venv/bin/python" has feval (editable), its dependencies and EXTRA's.
feval_venv() {
    feval_root=$1
    feval_extra=${2:-}
    venv=${FEVAL_VENV:-$feval_root/.venv}
    feval_maker=$(cat "$venv/feval-unfinished" 2>/dev/null) || feval_maker=
    if [ -n "$feval_maker" ] && kill -0 "$feval_maker" 2>/dev/null; then
        feval_stop "process $feval_maker is making $venv just now. Run this again when it is done (if it is another program, remove that folder)."
    fi
    if [ -e "$venv" ] && ! feval_whole; then
        # Never remove a folder that is not a virtual environment, whatever FEVAL_VENV names.
        [ -e "$venv/pyvenv.cfg" ] || [ -e "$venv/feval-unfinished" ] || [ -z "$(ls -A "$venv")" ] ||
            feval_stop "$venv is not a virtual environment. Move it away, or name another folder: FEVAL_VENV=/path/to/folder"
        feval_say "feval: $venv is not whole, or not Python 3.11 or later; making it anew."
        rm -rf "$venv"
    fi
    if [ ! -e "$venv" ]; then
        feval_find_python
        feval_say "feval: making a virtual environment in $venv with Python $(feval_version "$feval_python")."
        feval_make_venv
    fi

    # The stamp says for which pyproject.toml, where, and with which extra, the installation was last complete; `dev` covers all.
    feval_sum="$(cksum <"$feval_root/pyproject.toml") $feval_root"
    feval_stamp=$(cat "$venv/feval-installed" 2>/dev/null) || feval_stamp=
    case $feval_stamp in
        "$feval_sum dev" | "$feval_sum $feval_extra") return ;;
    esac
    feval_say "feval: installing feval${feval_extra:+ with the extra $feval_extra} and its dependencies (a minute or two, once)."
    if [ -n "${FEVAL_LOCKED:-}" ]; then
        awk '/^[a-z]/ {own = /^uv==/} own' "$feval_root/.ci/locked.txt" >"$venv/uv.txt" &&
            feval_pip --require-hashes --requirement "$venv/uv.txt" &&
            "$venv/bin/uv" pip install --quiet --python "$venv/bin/python" --require-hashes --requirement "$feval_root/.ci/locked.txt" &&
            feval_pip --no-deps --no-build-isolation --editable "$feval_root"
    else
        feval_pip --editable "$feval_root${feval_extra:+[$feval_extra]}"
    fi ||
        feval_stop "pip could not install feval; its words are above. Check the network (or pip's index) and run this again."
    printf '%s\n' "$feval_sum $feval_extra" >"$venv/feval-installed"
    rm -f "$venv/feval-unfinished"
}
