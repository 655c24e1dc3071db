/* SPDX-License-Identifier: MIT */
/* Defaults, and what the administrator says in their place: files with one number each, see rsocket(7). */
#include "rsocket/rsock.h"
#include "rsocket/wire.h"

#include <pthread.h>
#include <stdio.h>

#define CONFIG_DIR "/etc/rdma/rsocket/"

static struct rsock_config config = {
	.sizes = {.sbuf = 1 << 17, .rbuf = 1 << 17, .sq = 384, .rq = 384, .inline_bytes = 64},
	.polling_us = 10,
	.wake_up_ms = 5000,
};

static const struct {
	const char *file;
	uint32_t *value;
	uint32_t least, most;
} settings[] = {
	{CONFIG_DIR "polling_time", &config.polling_us, 0, UINT32_MAX},
	{CONFIG_DIR "wake_up_interval", &config.wake_up_ms, 1, INT32_MAX},
	{CONFIG_DIR "inline_default", &config.sizes.inline_bytes, 0, UINT16_MAX},
	{CONFIG_DIR "sqsize_default", &config.sizes.sq, 1, UINT16_MAX},
	{CONFIG_DIR "rqsize_default", &config.sizes.rq, 1, UINT16_MAX},
	{CONFIG_DIR "mem_default", &config.sizes.rbuf, 2, 1u << 30},
	{CONFIG_DIR "wmem_default", &config.sizes.sbuf, 4096, 1u << 30},
	{CONFIG_DIR "iomap_size", &config.sizes.iomap, 0, UINT16_MAX},
};

static void read_settings(void)
{
	for (size_t i = 0; i < sizeof(settings) / sizeof(*settings); i++) {
		FILE *f = fopen(settings[i].file, "re");
		uint32_t v;

		if (!f)
			continue;
		if (fscanf(f, "%u", &v) == 1)
			*settings[i].value = v < settings[i].least  ? settings[i].least
					     : v > settings[i].most ? settings[i].most
								    : v;
		fclose(f);
	}
	config.sizes.iomap = rs_iomap_unpack(rs_iomap_pack(config.sizes.iomap));
}

const struct rsock_config *rsock_config(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, read_settings);
	return &config;
}
