# Waits up to 30 s until the function `servers` of the script prints a number: await_servers NUMBER
await_servers() {
    for _ in $(seq 150); do
        [ "$(servers)" != "$1" ] || break
        sleep 0.2
    done
}
