#!/usr/bin/env bash
# Run the flow on YARN, the driver in the cluster: it outlives this shell, and YARN starts it again when it dies.
#   deploy/yarn/submit.sh --input /shared/readings --output /shared/alerts --checkpoint s3://bucket/state/low-voltage
# Wants HADOOP_CONF_DIR, and environment.tar.gz in this folder (pack-environment.sh).
set -euo pipefail

readonly HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
readonly PYTHON=./environment/bin/python

exec "${SPARK_SUBMIT:-spark-submit}" \
    --master yarn \
    --deploy-mode cluster \
    --properties-file "$HERE/spark-defaults.conf" \
    --num-executors "${EXECUTORS:-4}" \
    --archives environment.tar.gz#environment \
    --conf spark.yarn.appMasterEnv.PYSPARK_PYTHON="$PYTHON" \
    --conf spark.yarn.appMasterEnv.PYSPARK_DRIVER_PYTHON="$PYTHON" \
    --conf spark.executorEnv.PYSPARK_PYTHON="$PYTHON" \
    --conf spark.yarn.maxAppAttempts=10 \
    --conf spark.yarn.am.attemptFailuresValidityInterval=1h \
    --conf spark.yarn.submit.waitAppCompletion=false \
    ${SPARK_SUBMIT_ARGS:-} \
    "$HERE/flow.py" "$@"
