/* SPDX-License-Identifier: MIT */
/*
 * Performance management (IBA volume 1, 16.1): attributes lie 64 bytes into the MAD, each with a byte of
 * PortSelect and 16 bits of CounterSelect in front.
 */
#ifndef WIRE_PERF_H
#define WIRE_PERF_H

#include "wire/mad.h"

enum {
	PERF_CLASS_VERSION = 1,
	PERF_DATA = 64,
	PERF_DATA_LEN = 192,
	PERF_PORT_SELECT = 1,
	PERF_COUNTER_SELECT = 2,
	PERF_COUNTER_SELECT2 = 18, /* of PortCounters */
	PERF_ALL_PORTS = 0xff,
};

enum perf_attr {
	PERF_CLASS_PORT_INFO = 0x0001,
	PERF_PORT_COUNTERS = 0x0012,
	PERF_RCV_ERROR_DETAILS = 0x0015,
	PERF_XMIT_DISCARD_DETAILS = 0x0016,
	PERF_PORT_COUNTERS_EXT = 0x001d,
	PERF_XMIT_DATA_SL = 0x0036,
	PERF_RCV_DATA_SL = 0x0037,
};

/* ClassPortInfo.CapabilityMask */
enum { PERF_CAP_ALL_PORTS = 0x0100, PERF_CAP_EXTENDED = 0x0200, PERF_CAP_XMIT_WAIT = 0x1000 };

#endif
