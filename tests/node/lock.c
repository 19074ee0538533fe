/* Locks the given number of MiB of memory, as registering memory for RDMA does
   (ib_umem_get in the kernel), and prints the result. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

int main(int argc, char **argv) {
  size_t size = (argc > 1 ? strtoul(argv[1], NULL, 10) : 1) << 20;
  void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED || mlock(memory, size) != 0) {
    printf("NOT LOCKED %s\n", strerror(errno));
    return 1;
  }
  printf("LOCKED %zu\n", size >> 20);
  return 0;
}
