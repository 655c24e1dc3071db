/* SPDX-License-Identifier: MIT */
/*
 * libibumad on a machine without management ports: the list of adapters is empty, no name leads to one, and
 * no port handle is valid.
 */
#include "front/stubs.h"

int64_t no_such_ca(void)
{
	errno = ENODEV;
	return -ENODEV;
}

int64_t no_such_port(void)
{
	errno = EINVAL;
	return -EINVAL;
}

/* umad_register2() alone reports a positive errno. */
int64_t no_port_to_register(void)
{
	return errno = EINVAL;
}

void *empty_list(void)
{
	return NULL;
}

/* clang-format off */
#define UMAD_NAMES(X)						\
	X(stub_zero,	umad_init)				\
	X(stub_zero,	umad_done)				\
	X(stub_zero,	umad_get_cas_names)			\
	X(empty_list,	umad_get_ca_device_list)		\
	X(stub_nothing,	umad_free_ca_device_list)		\
	X(stub_zero,	umad_sort_ca_device_list)		\
	X(stub_zero,	umad_get_smi_gsi_pairs)			\
	X(no_such_ca,	umad_get_smi_gsi_pair_by_ca_name)	\
	X(no_such_ca,	umad_get_ca)				\
	X(no_such_ca,	umad_get_ca_portguids)			\
	X(no_such_ca,	umad_get_issm_path)			\
	X(no_such_ca,	umad_get_port)				\
	X(no_such_ca,	umad_open_port)				\
	X(no_such_ca,	umad_open_smi_port)			\
	X(no_such_ca,	umad_release_ca)			\
	X(no_such_ca,	umad_release_port)			\
	X(no_such_port,	umad_close_port)			\
	X(no_such_port,	umad_get_fd)				\
	X(no_such_port,	umad_poll)				\
	X(no_such_port,	umad_recv)				\
	X(no_such_port,	umad_register)				\
	X(no_such_port,	umad_register_oui)			\
	X(no_such_port,	umad_send)				\
	X(no_such_port,	umad_unregister)			\
	X(no_port_to_register, umad_register2)
/* clang-format on */

UMAD_NAMES(ALIAS)
