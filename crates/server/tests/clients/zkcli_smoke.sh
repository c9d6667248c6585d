#!/usr/bin/env bash
# Checks a server at HOST:PORT with Apache's command line client. Quotas are kept at absolute paths,
# so this works in a subtree of its own rather than in a chroot.
set -euo pipefail

total_limit_s=30
[[ -n ${WITHIN_LIMIT-} ]] || WITHIN_LIMIT=yes exec timeout "$total_limit_s" bash "$0" "$@"

address=$1
root=/zkcli_smoke-$$-$RANDOM
limit_s=10
jars=/usr/share/java
cli=(java -Xmx64m -XX:TieredStopAtLevel=1 -cp "$jars/zookeeper.jar:$jars/slf4j-nop.jar"
    org.apache.zookeeper.ZooKeeperMain -server "$address")

fail() {
    echo "FAILED: $1" >&2
    exit 1
}

# Runs one command in the open session and prints its answer. `version` asks the server nothing and
# prints one known line: the end of the answer.
ask() {
    printf '%s\nversion\n' "$*" >&"$to_session"
    local line
    while IFS= read -r -t "$limit_s" line <&"$from_session"; do
        [[ $line == "ZooKeeper CLI version"* ]] && return
        printf '%s\n' "$line"
    done
    fail "no answer to: $*"
}

# Events are printed by a thread of their own, before or after the answer to what caused them.
await_event() {
    local line
    while IFS= read -r -t "$limit_s" line <&"$from_session"; do
        [[ $line =~ $1 ]] && return
    done
    fail "no event: $1"
}

# check WHAT PATTERN COMMAND...: the answer matches the extended regular expression.
check() {
    local what=$1 pattern=$2 answer
    shift 2
    answer=$(ask "$@")
    [[ $answer =~ $pattern ]] || fail "$what: '$*' answered: $answer"
    echo "$what"
}

coproc session { exec "${cli[@]}" 2>&1; }
from_session=${session[0]} to_session=${session[1]} session_pid=$session_PID
trap 'kill "$session_pid" 2>/dev/null || true' EXIT

await_event "state:SyncConnected"
echo "connects"
check "has the reserved node" "zookeeper" ls /
check "creates" "Created $root\$" create "$root" first
check "refuses to create twice" "Node already exists: $root" create "$root"
check "refuses to create without a parent" "Node does not exist: $root/no/child" create "$root/no/child"
check "gets data" "^first\$" get "$root"
check "gets data with its stat" "dataVersion = 0" get -s "$root"
check "sets with the right version" "dataVersion = 1" set -s -v 0 "$root" second
check "refuses a wrong version" "version No is not valid" set -v 0 "$root" third
check "stats" "dataLength = 6" stat "$root"
check "creates in sequence" "Created $root/s-0000000000" create -s "$root/s-" x
check "creates an ephemeral" "Created $root/e" create -e "$root/e" x
check "creates a container" "Created $root/c" create -c "$root/c"
check "creates with a time to live" "Created $root/t" create -t 600000 "$root/t"
check "lists" "^\[c, e, s-0000000000, t\]\$" ls "$root"
check "lists recursively" "$root/s-0000000000" ls -R "$root"
check "counts all children" "^4\$" getAllChildrenNumber "$root"
check "lists ephemerals" "^\[$root/e\]\$" getEphemerals "$root"
check "syncs" "Sync is OK" sync "$root"
check "gets the open ACL" "'world,'anyone" getAcl "$root"
check "knows its address" "ip: 127.0.0.1" whoami
check "authenticates" "^\$" addauth digest user:password
check "knows who it is" "digest: user" whoami
check "sets an ACL" "aclVersion = 1" setAcl -s "$root/s-0000000000" auth::cdrwa
check "gets that ACL" "'digest,'user:.*cdrwa" getAcl "$root/s-0000000000"
check "reads the empty configuration" "^\$" config
check "sets a quota" "" setquota -n 100 "$root"
check "lists the quota" "Output quota for $root count=100" listquota "$root"
check "lists its use" "Output stat for $root count=5" listquota "$root"
check "deletes the quota" "" delquota "$root"
check "has no quota then" "quota for $root does not exist" listquota "$root"
check "refuses to delete a wrong version" "version No is not valid" delete -v 9 "$root/t"
check "adds a watch" "^\$" addWatch "$root"
echo "delete $root/t" >&"$to_session"
await_event "NodeDeleted path:$root/t"
echo "deletes, and sees it"
check "refuses to delete a parent" "Node not empty: $root" delete "$root"
check "deletes all" "" deleteall "$root"
check "has nothing left" "Node does not exist: $root" stat "$root"

if timeout "$limit_s" "${cli[@]}" get "$root" >/dev/null 2>&1; then
    fail "a failed command exits non-zero"
fi
echo "a failed command exits non-zero"

echo quit >&"$to_session"
wait "$session_pid" || fail "the session ends cleanly"
echo ok
