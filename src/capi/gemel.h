/* gemel without Python: arrays, compiled programs, and work of one's own in the engine's queues.
 *
 * Every call returns at once unless it says that it waits. Calls that give a gemel_status give
 * GEMEL_OK, or GEMEL_FAILED and leave a text for gemel_error(): also for null where something is
 * needed, or numbers that stand for nothing. Nothing here throws. Any thread may call. */

#ifndef GEMEL_H
#define GEMEL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
#define GEMEL_API extern "C" __attribute__((visibility("default")))
#define GEMEL_NOEXCEPT noexcept
#else
#define GEMEL_API __attribute__((visibility("default")))
#define GEMEL_NOEXCEPT
#endif

/* Raised when something below changes its meaning; compare it with gemel_abi(). */
#define GEMEL_ABI 1

typedef enum { GEMEL_OK = 0, GEMEL_FAILED = 1 } gemel_status;
typedef enum {
  GEMEL_BOOL = 0,
  GEMEL_UINT8 = 1,
  GEMEL_INT8 = 2,
  GEMEL_INT32 = 3,
  GEMEL_INT64 = 4,
  GEMEL_FLOAT16 = 5,
  GEMEL_FLOAT32 = 6,
  GEMEL_FLOAT64 = 7,
  GEMEL_UINT32 = 8,
  GEMEL_UINT64 = 9,
  GEMEL_INT16 = 10,
  GEMEL_UINT16 = 11,
  GEMEL_BFLOAT16 = 12,
  GEMEL_COMPLEX64 = 13,
  GEMEL_COMPLEX128 = 14
} gemel_dtype;
typedef struct gemel_array gemel_array;           /* dense, on a device; counts as one reference */
typedef struct gemel_plan gemel_plan;             /* a compiled program, for all sizes it fits */
typedef struct gemel_completion gemel_completion; /* how pushed work says that it has ended */

GEMEL_API int gemel_abi(void) GEMEL_NOEXCEPT;
/* "ValueError: ...": of this thread's last call that failed; valid until its next one. */
GEMEL_API const char* gemel_error(void) GEMEL_NOEXCEPT;

/* --- arrays --- */

/* `dtype` is a gemel_dtype. Contents are undefined until written. Device 0 is the CPU. */
GEMEL_API gemel_status gemel_array_create(int dtype, int rank, const int64_t* extents, int device,
                                          gemel_array** array) GEMEL_NOEXCEPT;
/* Copies `bytes`, all there are, in C order. Waits until nothing is pending on the array. */
GEMEL_API gemel_status gemel_array_write(gemel_array* array, const void* data,
                                         size_t bytes) GEMEL_NOEXCEPT;
/* The same out of it; behind what has been issued before. Waits. */
GEMEL_API gemel_status gemel_array_read(gemel_array* array, void* data,
                                        size_t bytes) GEMEL_NOEXCEPT;
GEMEL_API gemel_dtype gemel_array_dtype(const gemel_array* array) GEMEL_NOEXCEPT;
GEMEL_API int gemel_array_rank(const gemel_array* array) GEMEL_NOEXCEPT;
GEMEL_API const int64_t* gemel_array_extents(const gemel_array* array) GEMEL_NOEXCEPT;
GEMEL_API size_t gemel_array_bytes(const gemel_array* array) GEMEL_NOEXCEPT;
/* Its memory: for pushed work that reads or writes it, while it runs. */
GEMEL_API void* gemel_array_data(gemel_array* array) GEMEL_NOEXCEPT;
GEMEL_API void gemel_array_release(gemel_array* array) GEMEL_NOEXCEPT; /* null is ignored */

/* --- plans --- */

/* An image with its kernels and arrays in it; the bytes are copied. Kernels for another kind of
 * processor, or with instructions this one lacks, are a "DeviceError: ...". */
GEMEL_API gemel_status gemel_plan_load(const void* image, size_t bytes,
                                       gemel_plan** plan) GEMEL_NOEXCEPT;
GEMEL_API const char* gemel_plan_name(const gemel_plan* plan) GEMEL_NOEXCEPT;
GEMEL_API int gemel_plan_inputs(const gemel_plan* plan) GEMEL_NOEXCEPT;
GEMEL_API int gemel_plan_outputs(const gemel_plan* plan) GEMEL_NOEXCEPT;
GEMEL_API int gemel_plan_scalars(const gemel_plan* plan) GEMEL_NOEXCEPT;
/* Issues it: as many inputs, scalars and results as it has, all on one device. The results are new
 * arrays. `seed` decides the random numbers, if it draws some. An array that the plan overwrites
 * may be given once. */
GEMEL_API gemel_status gemel_plan_run(gemel_plan* plan, gemel_array* const* inputs,
                                      const double* scalars, int64_t seed,
                                      gemel_array** results) GEMEL_NOEXCEPT;
/* The same by this thread alone, done when it returns: waits for the inputs, then the engine has no
 * part in it. Meanwhile nothing else may write them. */
GEMEL_API gemel_status gemel_plan_run_here(gemel_plan* plan, gemel_array* const* inputs,
                                           const double* scalars, int64_t seed,
                                           gemel_array** results) GEMEL_NOEXCEPT;
GEMEL_API void gemel_plan_release(gemel_plan* plan) GEMEL_NOEXCEPT;

/* --- work of one's own --- */

/* Begins the work, on a thread of the lane. It has ended when gemel_complete() is called with
 * `done`: once, in here or later, on any thread. */
typedef void (*gemel_function)(void* context, gemel_completion* done);
/* `message` is null, or why it failed: then what it writes carries a RuntimeError. */
GEMEL_API void gemel_complete(gemel_completion* done, const char* message) GEMEL_NOEXCEPT;
/* A queue with a thread of its own. */
GEMEL_API gemel_status gemel_lane_create(const char* name, int* lane) GEMEL_NOEXCEPT;
/* Issues function(context) in a lane, -1: the CPU's. It starts when what was issued before is done
 * with these arrays. `drop`, if any, is called with the context when all is over; not when this
 * fails. */
GEMEL_API gemel_status gemel_push(const char* name, gemel_function function, void* context,
                                  void (*drop)(void*), gemel_array* const* reads, int read_count,
                                  gemel_array* const* writes, int write_count,
                                  int lane) GEMEL_NOEXCEPT;

/* --- waiting --- */

/* Until the array's contents are there; fails with what made them fail. */
GEMEL_API gemel_status gemel_wait(gemel_array* array) GEMEL_NOEXCEPT;
/* Until all that was issued before is done; fails with the first failure nobody has seen. */
GEMEL_API gemel_status gemel_wait_all(void) GEMEL_NOEXCEPT;
/* Waits for everything and ends the engine's threads; later work is done by the calls themselves.
 */
GEMEL_API void gemel_shutdown(void) GEMEL_NOEXCEPT;

#endif
