# shellcheck shell=bash
# Facts of this machine that explain a benchmark's figures. Sourced by ./dev.

# fact NAME TEXT: prints one aligned line, or nothing without a text.
fact() { [[ -z ${2:-} ]] || printf '  %-12s %s\n' "$1" "$2"; }

first_line() { head -n1 "$1" 2>/dev/null || true; }

cpu_quota() {
  local quota period
  read -r quota period 2>/dev/null </sys/fs/cgroup/cpu.max || return 0
  [[ $quota == max ]] || awk "BEGIN { printf \", cgroup quota %.1f\", $quota / $period }"
}

caches() {
  local index text=''
  for index in /sys/devices/system/cpu/cpu0/cache/index*; do
    [[ -r $index/size ]] || continue
    text+="L$(<"$index/level") $(<"$index/type") $(<"$index/size") (cpus $(<"$index/shared_cpu_list")), "
  done
  printf '%s' "${text%, }"
}

cuda() {
  local nvcc
  nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null || true)
  if [[ -n $nvcc ]]; then
    "$nvcc" --version | sed -n 's/.*release \([0-9.]*\).*/toolkit \1/p'
  else
    echo "no toolkit"
  fi
}

gpus() {
  command -v nvidia-smi >/dev/null || return 0
  nvidia-smi --query-gpu=name,memory.total --format=csv,noheader 2>/dev/null | paste -sd ';' || true
}

show_machine() {
  heading "this machine"
  fact cpu "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n1)"
  fact cores "$(nproc) usable of $(getconf _NPROCESSORS_ONLN)$(cpu_quota), load $(cut -d' ' -f1-3 /proc/loadavg)"
  fact caches "$(caches)"
  fact memory "$(awk '/MemTotal/ { t = $2 } /MemAvailable/ { a = $2 }
                     END { printf "%.1f GiB, %.1f available", t / 1048576, a / 1048576 }' /proc/meminfo)"
  fact "numa nodes" "$(find /sys/devices/system/node -maxdepth 1 -name 'node[0-9]*' 2>/dev/null | wc -l)"
  fact "huge pages" "$(first_line /sys/kernel/mm/transparent_hugepage/shmem_enabled)"
  fact kernel "$(uname -sr)"
  fact system "$(sed -n 's/^PRETTY_NAME="\(.*\)"/\1/p' /etc/os-release 2>/dev/null)"
  fact compiler "$(g++ --version 2>/dev/null | head -n1)"
  fact cuda "$(cuda)"
  fact gpus "$(gpus)"
}
