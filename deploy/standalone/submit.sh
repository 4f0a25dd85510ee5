#!/usr/bin/env bash
# Run the flow on a standalone cluster, the driver here: standalone clusters have no cluster mode for Python.
#   deploy/standalone/submit.sh spark://master:7077 --input /shared/readings --output /shared/alerts --checkpoint /shared/state
# environment/ and environment.tar.gz are in this folder (pack-environment.sh makes both).
set -euo pipefail

readonly HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
readonly MASTER="${1:?give the master, such as spark://master:7077}"
shift

# The same path for all: executors unpack the archive as ./environment in their work folders, and the driver, with the
# process that plans its splits, finds the folder of that name here.
export PYSPARK_PYTHON=./environment/bin/python
export PYSPARK_DRIVER_PYTHON=./environment/bin/python

exec "${SPARK_SUBMIT:-spark-submit}" \
    --master "$MASTER" \
    --properties-file "$HERE/spark-defaults.conf" \
    --archives environment.tar.gz#environment \
    ${SPARK_SUBMIT_ARGS:-} \
    "$HERE/flow.py" "$@"
