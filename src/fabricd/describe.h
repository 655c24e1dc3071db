/* SPDX-License-Identifier: MIT */
/* Makes the subnet that the command line asks for. */
#ifndef FABRICD_DESCRIBE_H
#define FABRICD_DESCRIBE_H

#include "fabricd/fabricd.h"

struct describe_options {
	const char *what;   /* star:4, or a file */
	const char *speed;  /* "HDR"; NULL: as described */
	unsigned mtu;       /* bytes; 0: as described */
	unsigned hca_ports; /* of what a word describes */
	const char *ip;     /* 10.47.0.0/16; NULL: none but those described */
};

/* Fills d->subnet and d->topo. 0, or -errno with a sentence in err. */
int describe(struct fabricd *d, const struct describe_options *o, char err[TOPO_ERROR]);

/* Whether two nodes have a GUID in common: a sentence for the user about the first of them. */
bool describe_twins(const struct subnet *s, char sentence[TOPO_ERROR]);

/* loss=1% corrupt=0.1% duplicate=1% delay=50us, or none: 0, or -EINVAL with a sentence in err. */
int describe_fault(const char *text, struct subnet_fault *f, char err[TOPO_ERROR]);

/* The port that "S1[3]" names, or "node1" if it has but one, or NULL with a sentence in err. */
struct subnet_port *describe_port(const struct subnet *s, const char *text, char err[TOPO_ERROR]);

#endif
