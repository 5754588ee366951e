#!/bin/sh
# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
#
# Gives a container its share of an emulated device before its first instruction runs.
#
# Written by the Ullage node agent and run by the container runtime on the host as a createRuntime
# hook: slice-hook SLOT QUOTA_MICROSECONDS CORES, the container's state as JSON on standard input.
# POSIX sh, sed, grep, cat, mv, mkdir and rm only: the host may have nothing else.
# Any failure ends with a message and a non-zero status, so that no container starts unlimited.
set -u
PATH=/usr/sbin:/usr/bin:/sbin:/bin
LC_ALL=C
export PATH LC_ALL

cgroup_root=@CGROUP_ROOT@
proc_root=@PROC_ROOT@
slots=@SLOTS@
period=100000

fail() {
  printf 'ullage slice-hook: %s\n' "$*" >&2
  exit 1
}

# The path of process $pid in the hierarchy of controller $1; empty names the v2 hierarchy.
path_of() {
  if [ -n "$1" ]; then
    found=$(sed -n "s/^[0-9]*:\([^:]*,\)\{0,1\}$1\(,[^:]*\)\{0,1\}:\(\/.*\)\$/\3/p" "$own") || found=
  else
    found=$(sed -n 's/^0::\(\/.*\)$/\1/p' "$own") || found=
  fi
  case $found in
    '') fail "process $pid has no ${1:-unified} cgroup in $own" ;;
    / | */../* | */.. | *[[:space:]]*) fail "the ${1:-unified} cgroup of process $pid is $found, not its container's own" ;;
  esac
  printf '%s' "$found"
}

# Ends the start unless the file $1 is there.
need() {
  [ -f "$1" ] || fail "$1 is missing: is its controller enabled for this cgroup?"
}

# Writes $1 to the file $2 and reads back what the kernel made of it.
put() {
  need "$2"
  { printf '%s\n' "$1" >"$2"; } 2>/dev/null || fail "the kernel refused $1 in $2"
  now=
  IFS= read -r now <"$2" || fail "cannot read $2 back"
  [ "$now" = "$1" ] || fail "$2 says '$now' after '$1' was written"
}

# Lowers $quota to a limit of $1 microseconds in every $2 that stands already.
at_most() {
  case $1$2 in
    '' | *[!0-9]*) return 0 ;; # "max" and -1: no limit
  esac
  [ "$2" -gt 0 ] || fail "a period of $2 microseconds makes no sense"
  scaled=$(($1 * period / $2))
  [ "$scaled" -ge "$quota" ] || quota=$scaled
}

apply_v1() {
  cpu=$(path_of cpu) || exit 1
  cpuset=$(path_of cpuset) || exit 1
  cpuacct=$(path_of cpuacct) || exit 1
  pids=$(path_of pids) || exit 1
  memory=$(path_of memory) || exit 1
  # v1 refuses a quota above that of any cgroup around it, so take the smallest.
  level=$cpu
  while [ -n "$level" ]; do
    there=$cgroup_root/cpu$level
    if [ -r "$there/cpu.cfs_quota_us" ] && [ -r "$there/cpu.cfs_period_us" ]; then
      IFS= read -r us <"$there/cpu.cfs_quota_us" || fail "cannot read $there/cpu.cfs_quota_us"
      IFS= read -r every <"$there/cpu.cfs_period_us" || fail "cannot read $there/cpu.cfs_period_us"
      at_most "$us" "$every"
    fi
    level=${level%/*}
  done
  there=$cgroup_root/cpu$cpu
  need "$there/cpu.cfs_period_us"
  IFS= read -r every <"$there/cpu.cfs_period_us" || fail "cannot read $there/cpu.cfs_period_us"
  if [ "$every" != "$period" ]; then
    # Quota and period are checked together at each write: lift the one before the other changes.
    put -1 "$there/cpu.cfs_quota_us"
    put "$period" "$there/cpu.cfs_period_us"
  fi
  put "$quota" "$there/cpu.cfs_quota_us"
  put "$cores" "$cgroup_root/cpuset$cpuset/cpuset.cpus"
  record="version=1 cpu=$cpu cpuset=$cpuset cpuacct=$cpuacct pids=$pids memory=$memory"
}

apply_v2() {
  cpu=$(path_of '') || exit 1
  there=$cgroup_root$cpu
  need "$there/cpu.max"
  IFS=' ' read -r us every <"$there/cpu.max" || fail "cannot read $there/cpu.max"
  at_most "$us" "$every"
  put "$quota $period" "$there/cpu.max"
  put "$cores" "$there/cpuset.cpus"
  record="version=2 unified=$cpu"
}

[ "$#" -eq 3 ] || fail "expected SLOT QUOTA_MICROSECONDS CORES, got $# arguments"
slot=$1 quota=$2 cores=$3
case ${slot#slot-} in
  "$slot" | '' | *[!0-9]*) fail "'$slot' is no slot" ;;
esac
case $quota in
  '' | *[!0-9]*) fail "'$quota' is no quota in microseconds" ;;
esac
case $cores in
  '' | *[!0-9,-]*) fail "'$cores' is no list of cores" ;;
esac
rm -f "$slots/$slot" || fail "cannot remove the last record of $slot in $slots"

state=$(cat) || fail "cannot read the container's state from standard input"
pid=$(printf '%s\n' "$state" | sed -n 's/.*"pid"[[:space:]]*:[[:space:]]*\([0-9][0-9]*\).*/\1/p')
case $pid in
  '' | 0 | *[!0-9]*) fail "the container's state on standard input names no process" ;;
esac
own=$proc_root/$pid/cgroup
[ -r "$own" ] || fail "$own cannot be read: process $pid is gone"

# A "0::" line proves nothing, hybrid hosts have one: v2 is where the cpu controller is.
if [ -r "$cgroup_root/cgroup.controllers" ] && grep -qw cpu "$cgroup_root/cgroup.controllers"; then
  apply_v2
else
  apply_v1
fi

mkdir -p "$slots" || fail "cannot make $slots"
printf 'pid=%s quota=%s %s\n' "$pid" "$quota" "$record" >"$slots/.$slot.new" ||
  fail "cannot write the record of $slot in $slots"
mv -f "$slots/.$slot.new" "$slots/$slot" || fail "cannot write the record of $slot in $slots"
