# What the server scripts share: state folders, ports, being detached, waiting, and stopping.
SERVICES_DIR=${SERVICES_DIR:-$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)/.services}
export SERVICES_DIR
START_SECONDS=${START_SECONDS:-120}
STOP_SECONDS=30

# In CI nothing has to survive a power loss, and waiting for the disk is minutes of the tests. Elsewhere, also for the
# benches, MySQL and MariaDB write as they do by default.
WITHOUT_WAITING=()
[ -z "${CI:-}" ] || WITHOUT_WAITING=(--skip-log-bin --innodb-flush-log-at-trx-commit=0 --innodb-doublewrite=OFF)

say() { echo "services: $*" >&2; }
upper() { tr '[:lower:]' '[:upper:]' <<<"$1"; }
any_command() { local name; for name; do command -v "$name" >/dev/null && return 0; done; return 1; }

default_port() {
  case $1 in
    mysql) echo "${SERVICES_MYSQL_PORT:-13316}" ;;
    mariadb) echo "${SERVICES_MARIADB_PORT:-13317}" ;;
    neo4j) echo "${SERVICES_NEO4J_PORT:-17697}" ;;
    postgres) echo "${SERVICES_POSTGRES_PORT:-15442}" ;;
  esac
}

url_of() {
  case $1 in
    neo4j) echo "bolt://127.0.0.1:$2" ;;
    postgres) echo "postgresql://postgres@127.0.0.1:$2/postgres" ;;
    *) echo "mysql://root@127.0.0.1:$2/" ;;
  esac
}

recorded_port() { cat "$SERVICES_DIR/$1/port" 2>/dev/null; }

taken() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# steps of ten keep servers that search at the same time out of each other's way
free_port() { local port; port=$(default_port "$1"); while taken "$port"; do port=$((port + 10)); done; echo "$port"; }

# Speaks the first bytes of the protocol: an open port alone may be a proxy, or a server that still recovers.
answers() {
  (
    LC_ALL=C
    exec 3<>"/dev/tcp/127.0.0.1/$2"
    case $1 in
      neo4j) printf '\x60\x60\xb0\x17\0\0\4\5\0\0\0\4\0\0\0\0\0\0\0\0' >&3 ;;
      postgres) printf '\0\0\0\51\0\3\0\0user\0postgres\0database\0postgres\0\0' >&3 ;;
    esac
    IFS= read -r -t 2 -n 1 byte <&3 && [ -n "$byte" ] && [ "$1 $byte" != "postgres E" ]
  ) 2>/dev/null
}

command_line() {
  if [ -d /proc/self ]; then tr '\0' ' ' <"/proc/$1/cmdline"; else ps -ww -o command= -p "$1"; fi 2>/dev/null
}

# A pid file may outlive its process and its number be given to another: the server's command line names its folder.
running_pid() {
  local pid
  pid=$(cat "$SERVICES_DIR/$1/pid" 2>/dev/null) || return 1
  [[ $pid =~ ^[0-9]+$ && $(command_line "$pid") == *"$SERVICES_DIR/$1/"* ]] && echo "$pid"
}

# The server gets a session of its own and nothing of ours to hold open, so that `make services | cat` ends.
detach() {
  local name=$1; shift
  (
    for fd in /proc/self/fd/*; do fd=${fd##*/}; [ "$fd" -le 2 ] || eval "exec $fd>&-"; done 2>/dev/null
    if command -v setsid >/dev/null; then exec setsid "$@"; else exec nohup "$@"; fi
  ) </dev/null >>"$SERVICES_DIR/$name/log" 2>&1 &
  echo $! > "$SERVICES_DIR/$name/pid"
}

# wait_until_it_answers NAME PORT COMMAND...: gives up early when COMMAND says that the server is gone.
wait_until_it_answers() {
  local name=$1 port=$2 deadline=$((SECONDS + START_SECONDS)); shift 2
  until answers "$name" "$port"; do
    "$@" >/dev/null && [ $SECONDS -lt $deadline ] || return 1
    sleep 0.2
  done
}

publish() {
  url_of "$1" "$2" > "$SERVICES_DIR/$1/url.new" && mv "$SERVICES_DIR/$1/url.new" "$SERVICES_DIR/$1/url"
  printf '%-8s %s\n' "$1" "$(url_of "$1" "$2")"
}

# start_server NAME: `prepare` and `launch PORT` come from the server's own script.
start_server() {
  local name=$1 port
  mkdir -p "$SERVICES_DIR/$name"
  if running_pid "$name" >/dev/null; then
    port=$(recorded_port "$name")
  else
    rm -f "$SERVICES_DIR/$name/"{pid,url}
    : > "$SERVICES_DIR/$name/log"
    prepare || return 1
    port=$(free_port "$name")
    echo "$port" > "$SERVICES_DIR/$name/port"
    launch "$port"
    # until exec the process still carries the shell's command line
    until running_pid "$name" >/dev/null || ! kill -0 "$(cat "$SERVICES_DIR/$name/pid")" 2>/dev/null; do sleep 0.05; done
  fi
  if ! wait_until_it_answers "$name" "$port" running_pid "$name"; then
    say "$name did not start on port $port; the end of $SERVICES_DIR/$name/log:"
    tail -n 8 "$SERVICES_DIR/$name/log" >&2
    stop_server "$name"
    return 1
  fi
  publish "$name" "$port"
}

stop_server() {
  local name=$1 pid deadline=$((SECONDS + STOP_SECONDS))
  if pid=$(running_pid "$name"); then
    # at SIGTERM PostgreSQL would wait until its clients leave
    kill -s "$([ "$name" = postgres ] && echo INT || echo TERM)" "$pid"
    while running_pid "$name" >/dev/null; do
      [ $SECONDS -lt $deadline ] || kill -9 "$pid" 2>/dev/null || true
      sleep 0.1
    done
    say "$name stopped"
  fi
  rm -f "$SERVICES_DIR/$name/"{pid,url}
}

# Only root can install; elsewhere the caller says what is missing. A download may be damaged: it is tried again.
apt_install() {
  [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || return 1
  local log=$SERVICES_DIR/apt.log attempt
  say "installing $* with apt-get"
  for attempt in 1 2 3; do
    [ "$attempt" = 1 ] || say "apt-get failed ($(tail -n 1 "$log")); trying again"
    if try_apt_install "$@"; then return 0; fi
  done
  tail -n 3 "$log" >&2
  return 1
}

# The archives have a folder of their own: images of Debian remove those of the machine after every `apt-get update`,
# also after the one by which another server's script looks for its packages at the same time.
try_apt_install() {
  local archives=$SERVICES_DIR/apt-archives
  mkdir -p "$archives/partial"
  if [ -z "${apt_updated:-}" ]; then apt-get -qq update >"$log" 2>&1 || return 1; apt_updated=yes; fi
  DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 -o "Dir::Cache::Archives=$archives" \
    -o "APT::Sandbox::User=$(id -un)" install -y --no-install-recommends "$@" </dev/null >>"$log" 2>&1 || return 1
  rm -rf "$archives"
}
