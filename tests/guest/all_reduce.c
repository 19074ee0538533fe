/* Replaces `all_reduce_perf` of NVIDIA's nccl-tests on machines without a GPU: sums an array of
 * floats over all processes with MPI, checks the sum, and prints the table that nccl-tests prints.
 * The processes must be on several hosts.
 *
 * usage: all_reduce_perf -b BYTES [other flags are ignored] */

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ITERATIONS 5

static void fail(const char *why) {
  fprintf(stderr, "all_reduce_perf: %s\n", why);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

static void check_hosts(int ranks) {
  char own[MPI_MAX_PROCESSOR_NAME] = {0}, *all = malloc((size_t)ranks * sizeof own);
  int length;
  MPI_Get_processor_name(own, &length);
  MPI_Allgather(own, sizeof own, MPI_CHAR, all, sizeof own, MPI_CHAR, MPI_COMM_WORLD);
  int others = 0;
  for (int i = 0; i < ranks; i++) others += strcmp(own, all + (size_t)i * sizeof own) != 0;
  free(all);
  if (others == 0) fail("all processes are on one host");
}

int main(int argc, char **argv) {
  int rank, ranks;
  long bytes = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  for (int i = 1; i + 1 < argc; i++)
    if (strcmp(argv[i], "-b") == 0) bytes = atol(argv[i + 1]);
  int count = (int)(bytes / (long)sizeof(float));
  if (count < 1) fail("-b is missing");
  check_hosts(ranks);

  float *in = malloc((size_t)bytes), *out = malloc((size_t)bytes);
  for (int i = 0; i < count; i++) in[i] = (float)(rank + 1);
  MPI_Barrier(MPI_COMM_WORLD);
  double start = MPI_Wtime();
  for (int i = 0; i < ITERATIONS; i++)
    MPI_Allreduce(in, out, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  double seconds = (MPI_Wtime() - start) / ITERATIONS;
  float expected = (float)(ranks * (ranks + 1)) / 2;
  for (int i = 0; i < count; i++)
    if (out[i] != expected) fail("wrong sum");

  if (rank == 0) {
    double algbw = (double)bytes / seconds / 1e9, busbw = algbw * 2 * (ranks - 1) / ranks;
    printf("#       size         count      type   redop    root     time   algbw   busbw #wrong"
           "     time   algbw   busbw #wrong\n");
    printf("#        (B)    (elements)                               (us)  (GB/s)  (GB/s)       "
           "     (us)  (GB/s)  (GB/s)\n");
    printf("%12ld  %12d     float     sum      -1  %7.1f  %.6f  %.6f      0  %7.1f  %.6f  %.6f      0\n",
           bytes, count, seconds * 1e6, algbw, busbw, seconds * 1e6, algbw, busbw);
  }
  MPI_Finalize();
  return 0;
}
