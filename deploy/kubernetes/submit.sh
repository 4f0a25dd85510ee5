#!/usr/bin/env bash
# Run the flow on Kubernetes by Spark's own submit, the driver in the cluster.
#   deploy/kubernetes/submit.sh k8s://https://kubernetes.example:6443 registry.example/low-voltage:1 \
#       --input /shared/readings --output /shared/alerts --checkpoint /shared/state/low-voltage
# Once before: kubectl apply -f deploy/kubernetes/rbac.yaml -f deploy/kubernetes/checkpoint-volume.yaml
set -euo pipefail

readonly HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
readonly MASTER="${1:?give the API server, such as k8s://https://kubernetes.example:6443}"
readonly IMAGE="${2:?give the image}"
shift 2

exec "${SPARK_SUBMIT:-spark-submit}" \
    --master "$MASTER" \
    --deploy-mode cluster \
    --name low-voltage \
    --properties-file "$HERE/spark-defaults.conf" \
    --conf spark.executor.instances="${EXECUTORS:-4}" \
    --conf spark.kubernetes.namespace=flows \
    --conf spark.kubernetes.container.image="$IMAGE" \
    --conf spark.kubernetes.authenticate.driver.serviceAccountName=spark \
    --conf spark.kubernetes.driver.podTemplateFile="$HERE/kubernetes/driver-pod.yaml" \
    --conf spark.kubernetes.driver.podTemplateContainerName=driver \
    --conf spark.kubernetes.executor.podTemplateFile="$HERE/kubernetes/executor-pod.yaml" \
    --conf spark.kubernetes.executor.podTemplateContainerName=executor \
    --conf spark.kubernetes.submission.waitAppCompletion=false \
    ${SPARK_SUBMIT_ARGS:-} \
    local:///opt/flows/flow.py "$@"
