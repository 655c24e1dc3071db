/* SPDX-License-Identifier: MIT */
/* The IB connection manager as its users see it lies in a folder of its own. */
#include "cm/ib/conn.h"
