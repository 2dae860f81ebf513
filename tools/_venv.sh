# Sourced by the commands beside it: makes .venv with cassq and the dependency groups that are named, and puts it
# first on PATH. Installs again only when the package's own description has changed. Says what is missing where it
# cannot.

ensure_venv() {
    local groups="$1" python stamp wanted
    for python in python3.13 python3.12 python3.11 python3 python; do
        if command -v "$python" >/dev/null && "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            break
        fi
        python=""
    done
    if [ -z "$python" ]; then
        echo "cassq needs Python 3.11 or newer; install it and call this again" >&2
        return 69
    fi
    if ! [ -x .venv/bin/python ]; then
        echo "making .venv with $("$python" --version)" >&2
        if ! "$python" -m venv .venv; then
            echo "the venv module is missing: on Debian and Ubuntu, apt-get install python3-venv" >&2
            return 69
        fi
    fi
    stamp=".venv/cassq-installed-$(echo "$groups" | tr ',' '-')"
    wanted="$(cat setup.py pyproject.toml | cksum)"
    if [ "$(cat "$stamp" 2>/dev/null)" != "$wanted" ]; then
        echo "installing cassq and what ${groups//,/ and } needs into .venv" >&2
        ensure_pip_with_groups
        # Without warnings: setuptools has one for every editable installation.
        PYTHONWARNINGS=ignore .venv/bin/python -m pip install --quiet --disable-pip-version-check \
            --editable . $(printf -- '--group %s ' ${groups//,/ })
        echo "$wanted" > "$stamp"
    fi
    PATH="$PWD/.venv/bin:$PATH"
    export PATH
}

# Dependency groups came with pip 25.1; the pip of a new environment may be older.
ensure_pip_with_groups() {
    # Not by a pipe: pip would fail where grep has seen enough.
    if ! grep -q -- --group <<< "$(.venv/bin/python -m pip install --help)"; then
        .venv/bin/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip >= 25.1'
    fi
}
