# Reads figures.csv of ci/guest/bench and prints the table, with -v markdown=1 as Markdown. With
# -v suspects=1 prints the rows in which rperf is behind by more than rounds differ.

BEGIN { FS = "," }

function add(program, kind, value,    key) {
    if (value == "") return
    key = row SUBSEP program SUBSEP kind
    values[key, ++count[key]] = value
}

{
    row = $2 ":" $3 ":" $4
    if ($3 ~ /^tcp_/) sockets = 1
    if (!(row in seen)) { seen[row] = 1; rows[++row_count] = row }
    if ($1 > rounds) rounds = $1
    device[row] = $2; test[row] = $3; size[row] = $4
    unit = $3 ~ /_bw$/ ? 1e6 : 1e3
    # iperf3 takes the column of perftest, which has no sockets.
    program = $5 == "iperf3" ? "perftest" : $5
    if ($6 != "") add(program, "figure", $6 / unit)
    if ($7 != "") add(program, "mean", $7 / unit)
    # CPU seconds per gigabyte, or per million messages in latency tests.
    if ($8 > 0 && $9 > 0) add(program, "cpu", $8 / 1e3 * ($3 ~ /_bw$/ ? 1e9 / $9 : 1e6 / ($9 / $4)))
}

# Sorts the values of a key into s, and returns their number.
function sorted(key,    n, i, j, v) {
    n = count[key]
    for (i = 1; i <= n; i++) s[i] = values[key, i] + 0
    for (i = 2; i <= n; i++) { v = s[i]; for (j = i - 1; j > 0 && s[j] > v; j--) s[j + 1] = s[j]; s[j + 1] = v }
    return n
}
function has(program, kind) { return count[row SUBSEP program SUBSEP kind] > 0 }
function median(program, kind,    n) {
    n = sorted(row SUBSEP program SUBSEP kind)
    return n == 0 ? 0 : n % 2 ? s[(n + 1) / 2] : (s[n / 2] + s[n / 2 + 1]) / 2
}
function least(program, kind) { sorted(row SUBSEP program SUBSEP kind); return s[1] }
function most(program, kind,    n) { n = sorted(row SUBSEP program SUBSEP kind); return s[n] }

function cell(program, kind) {
    if (!has(program, kind)) return "-"
    return sprintf("%.4g (%.3g..%.3g)", median(program, kind), least(program, kind), most(program, kind))
}
# Returns the ratio of two programs; above 1 ours is better.
function ratio(ours, theirs, kind) {
    if (!has(ours, kind) || !has(theirs, kind)) return "-"
    return sprintf("%.2f", is_bw ? median(ours, kind) / median(theirs, kind) : median(theirs, kind) / median(ours, kind))
}
function cpu_ratio(theirs) {
    return has("rperf", "cpu") && has(theirs, "cpu") && median(theirs, "cpu") > 0 ? \
        sprintf("%.2f", median("rperf", "cpu") / median(theirs, "cpu")) : "-"
}
function cpu(program) { return has(program, "cpu") ? sprintf("%.3g", median(program, "cpu")) : "-" }

# Returns 1 if every round of ours is behind every round of theirs by more than a factor.
function behind(ours, theirs, kind, factor) {
    if (!has(ours, kind) || !has(theirs, kind)) return 0
    if (is_bw) return most(ours, kind) < least(theirs, kind) * factor
    return least(ours, kind) * factor > most(theirs, kind)
}

# Returns the cell, or an en dash if there are no values.
function md(program, kind) { return has(program, kind) ? cell(program, kind) : "–" }
function dash(text) { return text == "-" ? "–" : text }
# Returns the better of two values, or the only one that is not 0.
function better(a, b, greater) {
    if (a == 0 || b == 0) return a + b
    return (a > b) == greater ? a : b
}
function share(ours, theirs) { return ours > 0 && theirs > 0 ? sprintf("%.2f", ours / theirs) : "–" }
# Returns the text, in bold if it misses its aim.
function mark(text, ok) { return text == "–" || ok ? text : "**" text "**" }

function markdown_bandwidth(    i, r, c, l) {
    print "| | | bytes | rperf | qperf | perftest | / better | rperf `-cp1` | C loop | / C loop | CPU rperf | qperf | perftest | / lesser |"
    print "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|"
    for (i = 1; i <= row_count; i++) {
        row = rows[i]; is_bw = test[row] ~ /_bw$/
        if (!is_bw) continue
        r = share(median("rperf", "figure"), better(median("qperf", "figure"), median("perftest", "figure"), 1))
        l = share(median("polling", "figure"), median("loop", "figure"))
        c = share(median("rperf", "cpu"), better(median("qperf", "cpu"), median("perftest", "cpu"), 0))
        printf "| %s | %s | %d | %s | %s | %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", device[row], test[row], size[row],
            md("rperf", "figure"), md("qperf", "figure"), md("perftest", "figure"), mark(r, r >= 1), md("polling", "figure"), md("loop", "figure"),
            mark(l, l >= 0.98), dash(cpu("rperf")), dash(cpu("qperf")), dash(cpu("perftest")), mark(c, c <= 1)
    }
}
function markdown_latency(    i, p, q, l, c) {
    print "| | | bytes | rperf | perftest | / perftest | rperf, mean | qperf, mean | / qperf | rperf `-cp1` | C loop | / C loop | CPU rperf | qperf | perftest | / lesser |"
    print "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|"
    for (i = 1; i <= row_count; i++) {
        row = rows[i]; is_bw = test[row] ~ /_bw$/
        if (is_bw) continue
        p = share(median("rperf", "figure"), median("perftest", "figure"))
        q = share(median("rperf", "mean"), median("qperf", "mean"))
        l = share(median("polling", "figure"), median("loop", "figure"))
        c = share(median("rperf", "cpu"), better(median("qperf", "cpu"), median("perftest", "cpu"), 0))
        printf "| %s | %s | %d | %s | %s | %s | %s | %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", device[row], test[row], size[row],
            md("rperf", "figure"), md("perftest", "figure"), mark(p, p <= 1), md("rperf", "mean"), md("qperf", "mean"), mark(q, q <= 1),
            md("polling", "figure"), md("loop", "figure"), mark(l, l <= 1.02), dash(cpu("rperf")), dash(cpu("qperf")), dash(cpu("perftest")), mark(c, c <= 1)
    }
}
function markdown_all() {
    printf "Medians of %d rounds (smallest..largest). Values that miss their aim are bold; – is what a program cannot run.\n\n", rounds
    printf "Bandwidth in MB/s; CPU seconds of both ends per gigabyte. qperf (`-cm1`) writes with immediate data, the others without.\n\n"
    markdown_bandwidth()
    printf "\nOne-way latency in µs, medians if not stated otherwise; CPU seconds of both ends per million messages.\n\n"
    markdown_latency()
}

END {
    if (markdown) { markdown_all(); exit }
    for (i = 1; i <= row_count; i++) {
        row = rows[i]; is_bw = test[row] ~ /_bw$/
        if (suspects) {
            # Half of a peer or three quarters of the loop in C is far outside the variation of
            # rounds.
            if (behind("rperf", "qperf", is_bw ? "figure" : "mean", 0.5)) print row, "qperf"
            else if (behind("rperf", "perftest", "figure", 0.5)) print row, "perftest"
            else if (behind("polling", "loop", "figure", 0.75)) print row, "loop"
            continue
        }
        if (i == 1) {
            printf "Medians of %d rounds (smallest..largest): bandwidth in MB/s, latency in us. Ratios above 1: rperf is better.\n", rounds
            printf "%-4s %-13s %8s  %-22s %-22s %-22s %6s %6s  %-22s %-22s %6s\n", "", "test", "bytes", "rperf", "qperf -cm1", sockets ? "iperf3" : "perftest", "/qperf", sockets ? "/iperf" : "/perft", "rperf -cp1", "C loop", "/loop"
        }
        theirs = is_bw ? "figure" : "mean"
        printf "%-4s %-13s %8d  %-22s %-22s %-22s %6s %6s  %-22s %-22s %6s\n", device[row], test[row], size[row],
            cell("rperf", "figure") (is_bw || !has("qperf", "mean") ? "" : sprintf(" m%.4g", median("rperf", "mean"))), cell("qperf", theirs), cell("perftest", "figure"), ratio("rperf", "qperf", theirs), ratio("rperf", "perftest", "figure"),
            cell("polling", "figure"), cell("loop", "figure"), ratio("polling", "loop", "figure")
    }
    if (suspects || row_count == 0) exit
    printf "\nCPU seconds of both ends together, per gigabyte (bandwidth) or per million messages (latency). Ratios below 1: rperf uses less.\n"
    printf "%-4s %-13s %8s  %9s %9s %9s %6s %6s  %10s %9s\n", "", "test", "bytes", "rperf", "qperf", "perftest", "/qperf", "/perft", "rperf -cp1", "C loop"
    for (i = 1; i <= row_count; i++) {
        row = rows[i]
        printf "%-4s %-13s %8d  %9s %9s %9s %6s %6s  %10s %9s\n", device[row], test[row], size[row], cpu("rperf"), cpu("qperf"), cpu("perftest"),
            cpu_ratio("qperf"), cpu_ratio("perftest"), cpu("polling"), cpu("loop")
    }
    print "Latency is the median; m is the mean of rperf, which is compared with the mean of qperf."
}
