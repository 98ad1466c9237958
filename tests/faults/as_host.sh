#!/bin/sh
# as_host.sh ADDRESS COMMAND...: what Open MPI's launcher calls in place of ssh. Runs the command in the network
# namespace of the host with this address, under a host name of its own. FERRY_HOSTS is what the namespaces' names begin with.
number=${1##*.}
shift
exec ip netns exec "$FERRY_HOSTS$number" unshare --uts sh -c "hostname $FERRY_HOSTS$number && exec sh -c \"\$0\"" "$*"
