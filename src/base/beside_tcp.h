/* SPDX-License-Identifier: MIT */
/*
 * An option of rsockets (SOL_RDMA) that the stock library does not have, and refuses: at the port that is
 * connected to there may be plain TCP. So not by iWARP, whose ports are TCP's: who listens there would take
 * MPA's words for the program's. rconnect() is then EPROTONOSUPPORT.
 */
#ifndef BASE_BESIDE_TCP_H
#define BASE_BESIDE_TCP_H

enum { RSOCKET_BESIDE_TCP = 0x616e79 };

#endif
