#!/usr/bin/env bash
# Checks a server at HOST:PORT with Apache's command line client over TLS and SASL. The folder that is the second argument has
# ca.pem and client.pem; the user is alice, the password "sword fish".
set -euo pipefail

total_limit_s=45
[[ -n ${WITHIN_LIMIT-} ]] || WITHIN_LIMIT=yes exec timeout "$total_limit_s" bash "$0" "$@"

address=$1 folder=$2
jars=/usr/share/java
classes=$jars/zookeeper.jar:$jars/slf4j-nop.jar
for part in codec resolver transport-native-unix-common; do
    classes+=:$jars/netty-$part.jar
done

fail() {
    echo "FAILED: $1" >&2
    exit 1
}

# cli PASSWORD: runs the commands of standard input as alice.
cli() {
    local password=$1
    cat >"$folder/jaas.conf" <<JAAS
Client {
    org.apache.zookeeper.server.auth.DigestLoginModule required username="alice" password="$password";
};
JAAS
    java -Xmx64m -XX:TieredStopAtLevel=1 -cp "$classes" \
        -Dzookeeper.client.secure=true \
        -Dzookeeper.clientCnxnSocket=org.apache.zookeeper.ClientCnxnSocketNetty \
        -Dzookeeper.ssl.trustStore.location="$folder/ca.pem" \
        -Dzookeeper.ssl.keyStore.location="$folder/client.pem" \
        -Djava.security.auth.login.config="$folder/jaas.conf" \
        org.apache.zookeeper.ZooKeeperMain -server "$address" 2>&1
}

node=/zkcli_secure-$$
said=$(printf '%s\n' "create $node x sasl:alice:cdrwa" whoami "getAcl $node" "delete $node" "stat $node" quit | cli "sword fish") || true
for expected in "Created $node" "sasl: alice" "'sasl,'alice" "Node does not exist: $node"; do
    [[ $said == *"$expected"* ]] || fail "no '$expected' in: $said"
    echo "$expected"
done
said=$(printf '%s\n' "ls /" quit | cli wrong) || true
[[ $said != *"[zookeeper]"* ]] || fail "a wrong password is refused: $said"
echo "a wrong password is refused"
echo ok
