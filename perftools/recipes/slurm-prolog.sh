#!/bin/sh
# A prolog of Slurm that drains a node whose link to a reference host is too slow.
#
# slurm.conf:  Prolog=/etc/slurm/prolog.d/*
#
# RPERF_SERVER   reference host, on which an rperf server runs
# RPERF_ARGS     limits, and tests after the host; both ends must finish within PrologTimeout

RPERF_SERVER=${RPERF_SERVER:-reference}
RPERF_ARGS=${RPERF_ARGS:---time 1 --min-bw 80% rc_bw --max-lat 10us rc_lat}

# shellcheck disable=SC2086 # The arguments are several words.
message=$(rperf "$RPERF_SERVER" $RPERF_ARGS 2>&1 >/dev/null)
status=$?
case $status in
0) exit 0 ;;
3)
    # A status other than 0 makes Slurm drain the node and requeue the job.
    echo "print network too slow: $message"
    logger -t rperf-prolog -- "network too slow: $message" 2>/dev/null
    exit 1
    ;;
*)
    # A reference host that is down must not drain the whole cluster.
    echo "print network not checked: $message"
    logger -t rperf-prolog -- "network not checked (status $status): $message" 2>/dev/null
    exit 0
    ;;
esac
