#!/bin/sh
# A plug-in for Nagios: one bandwidth or latency test with limits.
#
# usage: nagios-plugin.sh HOST [OPTION…] TEST, for example
#        nagios-plugin.sh node1 --min-bw 380Gb/s rc_bw
#
# Prints one line with performance data. Statuses: 0 OK, 2 CRITICAL (a result exceeds a limit),
# 3 UNKNOWN (the test failed).

errors=$(mktemp) || exit 3
trap 'rm -f "$errors"' EXIT
output=$(rperf --unify-units --time 1 "$@" 2>"$errors")
status=$?
# The main figure is on the first line after the name of the test: NAME = VALUE UNIT.
figure=$(printf '%s\n' "$output" | awk '$2 == "=" { print $1 " " $3 " " $4; exit }')
# shellcheck disable=SC2086 # Three words.
set -- $figure
case ${3:-} in
bytes/sec) unit=B ;;
ns) unit=ns ;;
*) unit= ;;
esac
data=${1:+" | $1=$2$unit"}
message=$(head -n 1 "$errors")
case $status in
0) echo "RPERF OK - $figure$data" ;;
3) echo "RPERF CRITICAL - ${message#rperf: }$data"; exit 2 ;;
*) echo "RPERF UNKNOWN - ${message#rperf: }"; exit 3 ;;
esac
