#!/bin/sh
# Make a virtual environment with the first Python found that Partita runs on.
# Usage: venv.sh FOLDER   (PYTHON=/path/to/python chooses another one)
set -eu

without_pip=
for python in ${PYTHON:-python3.13 python3.12 python3.11 python3 python}; do
    "$python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' \
        >/dev/null 2>&1 || continue
    if ! "$python" -c 'import ensurepip, venv' >/dev/null 2>&1; then
        without_pip=$python
        continue
    fi
    echo "Making $1 with $("$python" --version)"
    exec "$python" -m venv --clear "$1"
done

if [ -n "$without_pip" ]; then
    version=$("$without_pip" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    echo "$without_pip cannot make a virtual environment: it lacks ensurepip." >&2
    echo "On Debian and Ubuntu: apt-get install python$version-venv" >&2
else
    echo "Partita needs Python 3.11, 3.12 or 3.13, and found none of them as" >&2
    echo "${PYTHON:-python3.13, python3.12, python3.11, python3 or python}." >&2
    echo "Install one, or name it: make PYTHON=/path/to/python3.12 ..." >&2
fi
exit 1
