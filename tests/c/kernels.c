// Runs kernels for another process, which sends requests through a pipe. Both processes map the
// same memory.
//
//   kernels MEMORY BYTES
//
// A request begins with six int64: the length of the library's path, the number of buffers, the
// number of run-time integers, the begin and the end of the range, and 0. The path, the buffers'
// offsets in the memory and the integers follow. The answer is the kernel's status as an int64.
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

typedef int32_t (*Kernel)(void* const*, const int64_t*, int64_t, int64_t);

static void take(void* into, size_t size) {
  if (size && fread(into, size, 1, stdin) != 1) exit(feof(stdin) ? 0 : 1);
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const int file = open(argv[1], O_RDWR);
  char* memory = mmap(NULL, (size_t)atoll(argv[2]), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) return 3;
  for (;;) {
    int64_t head[6];
    take(head, sizeof head);
    char* path = calloc((size_t)head[0] + 1, 1);
    int64_t *places = calloc((size_t)head[1] + 1, 8), *integers = calloc((size_t)head[2] + 1, 8);
    void** buffers = calloc((size_t)head[1] + 1, sizeof *buffers);
    take(path, (size_t)head[0]);
    take(places, (size_t)head[1] * 8);
    take(integers, (size_t)head[2] * 8);
    for (int64_t i = 0; i < head[1]; i++) buffers[i] = memory + places[i];
    void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    void* symbol = library ? dlsym(library, "kernel") : NULL;
    if (!symbol) {
      fprintf(stderr, "%s\n", dlerror());
      return 4;
    }
    const int64_t status = (*(Kernel*)&symbol)(buffers, integers, head[3], head[4]);
    fwrite(&status, sizeof status, 1, stdout);
    fflush(stdout);
    free(path), free(places), free(integers), free(buffers);
  }
}
