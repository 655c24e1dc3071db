#!/bin/bash
# SPDX-License-Identifier: MIT
# on_fabric.sh PROGRAM [PATTERN]: runs it on the first host of a fabric, which it may kill.
# shellcheck source=tests/clients/lib.sh
. "$(dirname "$0")/../clients/lib.sh"
enter fabric "$@"
ANYRDMA_HOST=node1 RDMACM_OWN_IP=10.47.0.1 RDMACM_OTHER_HOST=node2 RDMACM_OTHER_IP=10.47.0.2 RDMACM_FABRIC=$(fabric_process) \
	RDMACM_FABRIC_DIR=$RUN_DIR/net-${NAMESPACES[0]}/fabric-world "$@" || fail "$(basename "$1")"
done_testing
