#!/usr/bin/env bash
# Two hosts on this machine, host1 and host2: each with a name, an address, a network and a small
# /dev/shm, but with the same files and processes. As root, on Linux.
#
#   hosts.sh start               makes them, on a bridge with this machine
#   hosts.sh on HOST COMMAND...  runs a command there, with a new /dev/shm
#   hosts.sh cut HOST            takes its cable away; `join HOST` plugs it in again
#   hosts.sh stop                removes them; what runs there goes on without a network
set -euo pipefail

BRIDGE=rlhf-lab-test
NETWORK=10.213.77
SHARED_MEMORY=64m
# /etc/hosts of both.
NAMES=/run/$BRIDGE.hosts

start() {
    stop
    ip link add $BRIDGE type bridge
    ip addr add $NETWORK.254/24 dev $BRIDGE
    ip link set $BRIDGE up
    local number host
    for number in 1 2; do
        host=host$number
        ip netns add $host
        ip link add $BRIDGE-$number type veth peer name eth0 netns $host
        ip link set $BRIDGE-$number master $BRIDGE up
        ip -n $host addr add $NETWORK.$number/24 dev eth0
        ip -n $host link set eth0 up
        ip -n $host link set lo up
    done
    printf '%s\n' "127.0.0.1 localhost" "$NETWORK.1 host1" "$NETWORK.2 host2" \
        "$NETWORK.254 $(hostname -s)" >$NAMES
}

stop() {
    local number
    for number in 1 2; do
        ip link del $BRIDGE-$number 2>/dev/null || true
        ip netns del host$number 2>/dev/null || true
    done
    ip link del $BRIDGE 2>/dev/null || true
    rm -f $NAMES
}

on() {
    local host=$1
    shift
    # Not `ip netns exec`, whose /sys has no cgroups.
    # shellcheck disable=SC2016
    exec nsenter --net="/run/netns/$host" unshare --uts --mount bash -c \
        'hostname "$1"; mount --bind "$2" /etc/hosts; mount -t tmpfs -o size="$3" tmpfs /dev/shm
        shift 3; exec "$@"' bash "$host" $NAMES $SHARED_MEMORY "$@"
}

case ${1:-} in
start | stop) "$1" ;;
on) shift && on "$@" ;;
cut) ip link set "$BRIDGE-${2#host}" down ;;
join) ip link set "$BRIDGE-${2#host}" up ;;
*) echo "usage: hosts.sh start | stop | on HOST COMMAND... | cut HOST | join HOST" >&2 && exit 2 ;;
esac
