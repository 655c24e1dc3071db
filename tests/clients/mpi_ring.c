/* SPDX-License-Identifier: MIT */
/*
 * Messages of growing sizes around a ring of processes, from and to the same buffers, so that the library
 * below registers them piece by piece; every byte is looked at on both ends. Then one-sided sums into rank
 * 0's window.
 */
#include <mpi.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LARGEST = 4 << 20, ROUNDS = 5, SUMS = 50 };

static unsigned char value(int rank, int round)
{
	return (unsigned char)(1 + rank * 7 + round);
}

static void check(const char *what, const unsigned char *buf, size_t len, unsigned char wanted)
{
	for (size_t i = 0; i < len; i++) {
		if (buf[i] == wanted)
			continue;
		printf("%s: byte %zu of %zu is %u, not %u\n", what, i, len, buf[i], wanted);
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
}

static void pass_around(int rank, int n)
{
	int next = (rank + 1) % n, last = (rank + n - 1) % n;
	unsigned char *out = malloc(LARGEST), *in = malloc(LARGEST);

	for (int len = 1; len <= LARGEST; len *= 4) {
		for (int i = 0; i < ROUNDS; i++) {
			memset(out, value(rank, i), (size_t)len);
			memset(in, 0, (size_t)len);
			MPI_Sendrecv(out, len, MPI_BYTE, next, 0, in, len, MPI_BYTE, last, 0, MPI_COMM_WORLD,
				MPI_STATUS_IGNORE);
			check("sent", out, (size_t)len, value(rank, i));
			check("received", in, (size_t)len, value(last, i));
		}
	}
	free(out);
	free(in);
}

static long sum_up(int rank)
{
	long *sum, one = 1, got;
	MPI_Win window;

	MPI_Win_allocate(sizeof(*sum), 1, MPI_INFO_NULL, MPI_COMM_WORLD, &sum, &window);
	*sum = 0;
	MPI_Win_fence(0, window);
	for (int i = 0; i < SUMS; i++)
		MPI_Accumulate(&one, 1, MPI_LONG, 0, 0, 1, MPI_LONG, MPI_SUM, window);
	MPI_Win_fence(0, window);
	got = rank ? 0 : *sum;
	MPI_Win_free(&window);
	return got;
}

int main(int argc, char **argv)
{
	int rank, n;
	long sum;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &n);
	pass_around(rank, n);
	sum = sum_up(rank);
	if (!rank)
		printf("%d ranks, sum %ld of %d\n", n, sum, n * SUMS);
	MPI_Finalize();
	return !rank && sum != (long)n * SUMS;
}
