# Sourced by the scripts of this folder: runs the steps of a longer job, each with its number, time and log.
#   steps_begin <log folder> <number of steps>
#   step "What happens" command…      stops the script when the command fails
#   try_step "What happens" command…  goes on, and returns the command's exit code
# shellcheck shell=bash

if [[ -t 1 ]]; then
  steps_bold=$'\e[1m' steps_red=$'\e[31m' steps_green=$'\e[32m' steps_off=$'\e[0m'
else
  steps_bold="" steps_red="" steps_green="" steps_off=""
fi

steps_begin() {
  steps_logs=$1 steps_total=$2 steps_number=0 steps_job=""
  mkdir -p "$steps_logs"
  trap 'steps_end_job; exit 130' INT TERM
}

# Ends the running command with all its children (it leads its own process group).
steps_end_job() {
  [[ -z $steps_job ]] || kill -TERM -- "-$steps_job" 2>/dev/null || true
}

steps_time() {
  local seconds=$1
  if ((seconds < 60)); then echo "$seconds s"; else echo "$((seconds / 60)) min $((seconds % 60)) s"; fi
}

# The last line of a log, without colours and what a carriage return has overwritten, cut to the terminal.
steps_last_line() {
  tail -c 2000 "$1" | tr '\r' '\n' | sed -e 's/\x1b\[[0-9;]*[A-Za-z]//g' | grep -v '^[[:space:]]*$' | tail -n 1 |
    cut -c "1-$(($(tput cols 2>/dev/null || echo 100) - 24))" || true
}

try_step() {
  local what=$1 start=$SECONDS log status=0 shown=$SECONDS
  shift
  steps_number=$((steps_number + 1))
  log="$steps_logs/$(printf '%02d' "$steps_number")-$(tr -cs 'a-zA-Z0-9\n' '-' <<<"${what,,}").log"
  echo "${steps_bold}[$steps_number/$steps_total]${steps_off} $what"
  set -m
  "$@" >"$log" 2>&1 </dev/null &
  steps_job=$!
  set +m
  while kill -0 "$steps_job" 2>/dev/null; do
    sleep 0.2
    if [[ -t 1 ]]; then
      printf '\r\e[K      %s' "$(steps_time $((SECONDS - start)))  $(steps_last_line "$log")"
    elif ((SECONDS - shown >= 60)); then
      shown=$SECONDS
      echo "      $(steps_time $((SECONDS - start)))  $(steps_last_line "$log")"
    fi
  done
  wait "$steps_job" || status=$?
  steps_job=""
  [[ ! -t 1 ]] || printf '\r\e[K'
  if ((status == 0)); then
    echo "      ${steps_green}done${steps_off} in $(steps_time $((SECONDS - start)))"
  else
    echo "      ${steps_red}failed${steps_off} after $(steps_time $((SECONDS - start))) (exit code $status); the end of $log:" >&2
    tail -n 40 "$log" | sed 's/^/      | /' >&2
  fi
  steps_log=$log
  return "$status"
}

step() {
  try_step "$@" || exit 1
}
