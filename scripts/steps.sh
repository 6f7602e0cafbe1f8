# Sourced by the scripts of this folder: runs the steps of a longer job, each with its number, time and log.
#   steps_begin <log folder> <number of steps>
#   step "What happens" command…      stops the script when the command fails
#   try_step "What happens" command…  goes on, and returns the command's exit code
# After a step its log is the file $steps_log.
# shellcheck shell=bash

if [[ -t 1 ]]; then
  steps_bold=$'\e[1m' steps_red=$'\e[31m' steps_green=$'\e[32m' steps_off=$'\e[0m'
else
  steps_bold="" steps_red="" steps_green="" steps_off=""
fi

steps_begin() {
  steps_logs=$1 steps_total=$2 steps_number=0 steps_watcher=""
  mkdir -p "$steps_logs"
  trap 'steps_end_watcher' EXIT
}

steps_end_watcher() {
  [[ -n $steps_watcher ]] || return 0
  kill "$steps_watcher" 2>/dev/null || true
  wait "$steps_watcher" 2>/dev/null || true
  steps_watcher=""
}

# Microseconds since 1970.
steps_now() { echo "${EPOCHREALTIME/[.,]/}"; }

# steps_since <start>: the time that went by, for people.
steps_since() {
  local tenths=$((($(steps_now) - $1) / 100000))
  if ((tenths < 600)); then
    echo "$((tenths / 10)).$((tenths % 10)) s"
  else
    echo "$((tenths / 600)) min $((tenths % 600 / 10)) s"
  fi
}

# The last line of a log, without colours and what a carriage return has overwritten, cut to the terminal.
steps_last_line() {
  tail -c 2000 "$1" | tr '\r' '\n' | sed -e 's/\x1b\[[0-9;]*[A-Za-z]//g' | grep -v '^[[:space:]]*$' | tail -n 1 |
    cut -c "1-$(($(tput cols 2>/dev/null || echo 100) - 24))" || true
}

# steps_watch <log> <start>: shows where a running command is: twice a second on a terminal, else once a minute.
steps_watch() {
  local nap="" seconds=60
  trap '[[ -z $nap ]] || kill "$nap"; exit' TERM
  [[ ! -t 1 ]] || seconds=0.5
  while true; do
    sleep "$seconds" >/dev/null 2>&1 &
    nap=$!
    wait "$nap"
    [[ ! -t 1 ]] || printf '\r\e[K'
    printf '      %s' "$(steps_since "$2")  $(steps_last_line "$1")"
    [[ -t 1 ]] || echo
  done
}

try_step() {
  local what=$1 start status=0
  shift
  steps_number=$((steps_number + 1))
  steps_log="$steps_logs/$(printf '%02d' "$steps_number")-$(tr -cs 'a-z0-9\n' '-' <<<"${what,,}").log"
  echo "${steps_bold}[$steps_number/$steps_total]${steps_off} $what"
  start=$(steps_now)
  : >"$steps_log"
  steps_watch "$steps_log" "$start" &
  steps_watcher=$!
  "$@" >"$steps_log" 2>&1 </dev/null || status=$?
  steps_end_watcher
  [[ ! -t 1 ]] || printf '\r\e[K'
  if ((status == 0)); then
    echo "      ${steps_green}done${steps_off} in $(steps_since "$start")"
  else
    echo "      ${steps_red}failed${steps_off} after $(steps_since "$start") (exit code $status); the end of $steps_log:"
    tail -n 40 "$steps_log" | sed 's/^/      | /'
  fi
  return "$status"
}

step() {
  try_step "$@" || exit 1
}
