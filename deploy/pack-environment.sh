#!/usr/bin/env bash
# Make environment.tar.gz: a virtual environment with Anabranch, for spark-submit --archives environment.tar.gz#environment.
#   deploy/pack-environment.sh dist/anabranch-0.1.0-py3-none-any.whl
# Every host must have the Python it is made from, of the same version, at the same path.
set -euo pipefail

readonly WHEEL="${1:?give the wheel, or a requirement such as anabranch[kafka]==0.1.0}"
readonly PYTHON="${PYTHON:-python3}"

"$PYTHON" -m venv --clear environment
environment/bin/python -m pip install --quiet "$WHEEL" venv-pack
# Spark itself is on the hosts, and its jars are most of the bytes: executors take PySpark from SPARK_HOME/python.
environment/bin/venv-pack --prefix environment --output environment.tar.gz --force --quiet \
    --exclude '*/site-packages/pyspark/jars/*'
echo "environment.tar.gz: $(du -h environment.tar.gz | cut -f1)"
