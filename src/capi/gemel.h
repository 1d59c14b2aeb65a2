/* gemel without Python: arrays, compiled programs, and your own work in the engine's queues.
 *
 * Functions return at once, except those whose comment says that they wait. A function that returns
 * a gemel_status returns GEMEL_OK, or GEMEL_FAILED with a text for gemel_error(); null pointers and
 * numbers without a meaning fail in this way too. Nothing here throws. Any thread may call. */

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

/* Increased when the meaning of a declaration below changes; compare it with gemel_abi(). */
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
typedef struct gemel_array gemel_array;           /* a dense array on a device; one reference */
typedef struct gemel_plan gemel_plan;             /* a compiled program for all sizes it fits */
typedef struct gemel_completion gemel_completion; /* reports the end of pushed work */

GEMEL_API int gemel_abi(void) GEMEL_NOEXCEPT;
/* "ValueError: ...": the error of this thread's last failed call; valid until the next failure. */
GEMEL_API const char* gemel_error(void) GEMEL_NOEXCEPT;

/* --- arrays --- */

/* `dtype` is a gemel_dtype. Contents are undefined until written. Device 0 is the CPU. */
GEMEL_API gemel_status gemel_array_create(int dtype, int rank, const int64_t* extents, int device,
                                          gemel_array** array) GEMEL_NOEXCEPT;
/* Copies data into the array, in C order; `bytes` must be the size of the whole array. Waits until
 * nothing is pending on the array and the copy is done. */
GEMEL_API gemel_status gemel_array_write(gemel_array* array, const void* data,
                                         size_t bytes) GEMEL_NOEXCEPT;
/* The same from the array to `data`, after everything issued before that writes it. Waits. */
GEMEL_API gemel_status gemel_array_read(gemel_array* array, void* data,
                                        size_t bytes) GEMEL_NOEXCEPT;
GEMEL_API gemel_dtype gemel_array_dtype(const gemel_array* array) GEMEL_NOEXCEPT;
GEMEL_API int gemel_array_rank(const gemel_array* array) GEMEL_NOEXCEPT;
GEMEL_API const int64_t* gemel_array_extents(const gemel_array* array) GEMEL_NOEXCEPT;
GEMEL_API size_t gemel_array_bytes(const gemel_array* array) GEMEL_NOEXCEPT;
/* Its memory. Only for pushed work that reads or writes the array, while that work runs. */
GEMEL_API void* gemel_array_data(gemel_array* array) GEMEL_NOEXCEPT;
GEMEL_API void gemel_array_release(gemel_array* array) GEMEL_NOEXCEPT; /* null is ignored */

/* --- plans --- */

/* Loads an image that contains its kernels and arrays; the bytes are copied. Kernels for another
 * kind of processor, or with instructions that this one lacks, give a "DeviceError: ...". */
GEMEL_API gemel_status gemel_plan_load(const void* image, size_t bytes,
                                       gemel_plan** plan) GEMEL_NOEXCEPT;
GEMEL_API const char* gemel_plan_name(const gemel_plan* plan) GEMEL_NOEXCEPT;
GEMEL_API int gemel_plan_inputs(const gemel_plan* plan) GEMEL_NOEXCEPT;
GEMEL_API int gemel_plan_outputs(const gemel_plan* plan) GEMEL_NOEXCEPT;
GEMEL_API int gemel_plan_scalars(const gemel_plan* plan) GEMEL_NOEXCEPT;
/* Issues a run of the plan, with as many inputs, scalars and results as it has, all on one device.
 * The results are new arrays. `seed` determines the plan's random numbers. An array that the plan
 * overwrites may be given only once. */
GEMEL_API gemel_status gemel_plan_run(gemel_plan* plan, gemel_array* const* inputs,
                                      const double* scalars, int64_t seed,
                                      gemel_array** results) GEMEL_NOEXCEPT;
/* Runs the plan on this thread alone; it is done when the function returns. Waits for the inputs,
 * and then does not use the engine. Nothing else may write the inputs meanwhile. */
GEMEL_API gemel_status gemel_plan_run_here(gemel_plan* plan, gemel_array* const* inputs,
                                           const double* scalars, int64_t seed,
                                           gemel_array** results) GEMEL_NOEXCEPT;
GEMEL_API void gemel_plan_release(gemel_plan* plan) GEMEL_NOEXCEPT;

/* --- work of one's own --- */

/* Begins the work, on a thread of the lane. The work has ended when gemel_complete() is called with
 * `done`: exactly once, inside this function or later, on any thread. */
typedef void (*gemel_function)(void* context, gemel_completion* done);
/* `message` is null, or the reason why the work failed: then the arrays that it writes fail with a
 * RuntimeError. */
GEMEL_API void gemel_complete(gemel_completion* done, const char* message) GEMEL_NOEXCEPT;
/* Creates a queue with a thread of its own. */
GEMEL_API gemel_status gemel_lane_create(const char* name, int* lane) GEMEL_NOEXCEPT;
/* Issues function(context) in a lane; -1 means the lane of the CPU. It starts when everything
 * issued before has finished with these arrays. `drop`, unless null, is called with the context
 * when the work is over; it is not called if this function fails. */
GEMEL_API gemel_status gemel_push(const char* name, gemel_function function, void* context,
                                  void (*drop)(void*), gemel_array* const* reads, int read_count,
                                  gemel_array* const* writes, int write_count,
                                  int lane) GEMEL_NOEXCEPT;

/* --- waiting --- */

/* Waits until the array's contents are ready; if they have failed, fails with that error. */
GEMEL_API gemel_status gemel_wait(gemel_array* array) GEMEL_NOEXCEPT;
/* Waits until everything issued before has ended; fails with the first unseen failure, if any. */
GEMEL_API gemel_status gemel_wait_all(void) GEMEL_NOEXCEPT;
/* Waits for everything and ends the engine's threads. Later work runs inside the calls. */
GEMEL_API void gemel_shutdown(void) GEMEL_NOEXCEPT;

#endif
