/* Uses the C interface as a program without Python would.
 *
 * `use IMAGE COLUMNS ROWS...` runs the plan of an image that takes one float32 matrix, once for
 * each number of rows, and prints the result's extents and sum. Without an image it tries
 * everything else. It exits with 0, or reports what went wrong. */

#include <gemel.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHECK(condition)                                                                 \
  do {                                                                                   \
    if (!(condition)) {                                                                  \
      fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #condition, gemel_error()); \
      exit(1);                                                                           \
    }                                                                                    \
  } while (0)
#define FINE(call) CHECK((call) == GEMEL_OK)

static gemel_array* floats(int64_t rows, int64_t columns, float first) {
  const int64_t extents[] = {rows, columns};
  const size_t bytes = sizeof(float) * (size_t)(rows * columns);
  gemel_array* array;
  FINE(gemel_array_create(GEMEL_FLOAT32, 2, extents, 0, &array));
  float* values = malloc(bytes + 1);
  for (int64_t i = 0; i < rows * columns; ++i) values[i] = first + (float)i;
  FINE(gemel_array_write(array, values, bytes));
  free(values);
  return array;
}

static double sum(gemel_array* array) {
  const size_t bytes = gemel_array_bytes(array);
  float* values = malloc(bytes + 1);
  FINE(gemel_array_read(array, values, bytes));
  double total = 0;
  for (size_t i = 0; i < bytes / sizeof(float); ++i) total += values[i];
  free(values);
  return total;
}

/* --- plans --- */

static char* contents(const char* path, size_t* bytes) {
  FILE* file = fopen(path, "rb");
  CHECK(file != NULL);
  fseek(file, 0, SEEK_END);
  *bytes = (size_t)ftell(file);
  rewind(file);
  char* data = malloc(*bytes);
  CHECK(fread(data, 1, *bytes, file) == *bytes);
  fclose(file);
  return data;
}

static void run_image(const char* path, int64_t columns, char** rows_of, int count) {
  size_t bytes;
  char* data = contents(path, &bytes);
  gemel_plan* plan;
  FINE(gemel_plan_load(data, bytes, &plan));
  CHECK(gemel_plan_inputs(plan) == 1 && gemel_plan_outputs(plan) == 1);
  for (int i = 0; i < count; ++i) {
    const int64_t rows = atoll(rows_of[i]);
    gemel_array* input = floats(rows, columns, 1);
    gemel_array* result;
    FINE(gemel_plan_run(plan, &input, NULL, 0, &result));
    printf("%lld", (long long)rows);
    for (int axis = 0; axis < gemel_array_rank(result); ++axis) {
      printf(" %lld", (long long)gemel_array_extents(result)[axis]);
    }
    const double total = sum(result);
    printf(": %.4f\n", total);
    gemel_array_release(result);
    FINE(gemel_plan_run_here(plan, &input, NULL, 0, &result));
    CHECK(sum(result) == total);
    gemel_array_release(result);
    gemel_array_release(input);
  }
  const int64_t extents[] = {4};
  gemel_array* wrong;
  gemel_array* result = NULL;
  FINE(gemel_array_create(GEMEL_FLOAT32, 1, extents, 0, &wrong));
  CHECK(gemel_plan_run(plan, &wrong, NULL, 0, &result) == GEMEL_FAILED && result == NULL);
  CHECK(strstr(gemel_error(), "TypeError") != NULL && strstr(gemel_error(), "shape") != NULL);
  gemel_array_release(wrong);
  gemel_plan_release(plan);
  for (size_t cut = 0; cut < bytes; cut += 1 + bytes / 997) {
    gemel_plan* none = NULL;
    CHECK(gemel_plan_load(data, cut, &none) == GEMEL_FAILED && none == NULL);
  }
  free(data);
}

/* --- work of one's own --- */

struct work {
  gemel_array* from;
  gemel_array* to;
  const char* message;
  int dropped;
};

static void add_one(void* context, gemel_completion* done) {
  struct work* work = context;
  const float* from = gemel_array_data(work->from);
  float* to = gemel_array_data(work->to);
  for (size_t i = 0; i < gemel_array_bytes(work->to) / sizeof(float); ++i) to[i] = from[i] + 1;
  gemel_complete(done, work->message);
}

static void drop(void* context) { ++((struct work*)context)->dropped; }

static void* finish(void* done) {
  usleep(20000);
  gemel_complete(done, NULL);
  return NULL;
}

/* Completes later, on its own thread. */
static void hand_on(void* context, gemel_completion* done) {
  pthread_t thread;
  (void)context;
  CHECK(pthread_create(&thread, NULL, finish, done) == 0);
  pthread_detach(thread);
}

static void push_work(void) {
  gemel_array* a = floats(3, 4, 0);
  gemel_array* b = floats(3, 4, 0);
  int lane;
  FINE(gemel_lane_create("mine", &lane));
  struct work there = {a, b, NULL, 0};
  struct work back = {b, a, NULL, 0};
  for (int i = 0; i < 100; ++i) {
    const int where = i % 3 == 0 ? lane : -1;
    FINE(gemel_push("there", add_one, &there, drop, &a, 1, &b, 1, where));
    FINE(gemel_push("back", add_one, &back, drop, &b, 1, &a, 1, -1));
    if (i % 10 == 0) FINE(gemel_push("late", hand_on, NULL, NULL, &a, 1, &b, 1, lane));
  }
  CHECK(sum(a) == 66 + 12 * 200);
  FINE(gemel_wait_all());
  CHECK(there.dropped == 100 && back.dropped == 100);
  struct work bad = {a, b, "it is broken", 0};
  FINE(gemel_push("bad", add_one, &bad, drop, &a, 1, &b, 1, -1));
  CHECK(gemel_wait(b) == GEMEL_FAILED && strstr(gemel_error(), "it is broken") != NULL);
  FINE(gemel_wait(a));
  FINE(gemel_push("there", add_one, &there, drop, &a, 1, &b, 1, -1));
  FINE(gemel_wait(b)); /* overwriting the array clears its failure */
  gemel_array_release(a);
  gemel_array_release(b);
}

static void refuse(void) {
  gemel_array* array = NULL;
  const int64_t huge[] = {INT64_MAX / 2, 8};
  const int64_t negative[] = {-1};
  CHECK(gemel_array_create(GEMEL_FLOAT32, 2, huge, 0, &array) == GEMEL_FAILED);
  CHECK(strncmp(gemel_error(), "MemoryError", 11) == 0);
  CHECK(gemel_array_create(GEMEL_FLOAT32, 1, negative, 0, &array) == GEMEL_FAILED);
  CHECK(gemel_array_create(99, 0, NULL, 0, &array) == GEMEL_FAILED);
  CHECK(gemel_array_create(GEMEL_FLOAT32, 0, NULL, 63, &array) == GEMEL_FAILED && array == NULL);
  FINE(gemel_array_create(GEMEL_INT64, 0, NULL, 0, &array));
  int64_t value = 42;
  CHECK(gemel_array_write(array, &value, 4) == GEMEL_FAILED);
  FINE(gemel_array_write(array, &value, 8));
  value = 0;
  FINE(gemel_array_read(array, &value, 8));
  CHECK(value == 42 && gemel_array_rank(array) == 0 && gemel_array_dtype(array) == GEMEL_INT64);
  gemel_array_release(array);
  gemel_array_release(NULL);
  CHECK(gemel_push("none", NULL, NULL, NULL, NULL, 0, NULL, 0, -1) == GEMEL_FAILED);
}

static void nothing(void* context, gemel_completion* done) {
  (void)context;
  gemel_complete(done, NULL);
}

/* Null where a pointer is needed, and invalid numbers. */
static void refuse_null(void) {
  const int64_t extents[] = {2};
  const int64_t empty_extents[] = {0};
  gemel_array* none = NULL;
  gemel_array *array, *empty;
  gemel_plan* plan;
  int lane;
  float values[2];
  FINE(gemel_array_create(GEMEL_FLOAT32, 1, extents, 0, &array));
  FINE(gemel_array_create(GEMEL_FLOAT32, 1, empty_extents, 0, &empty));
  CHECK(gemel_array_create(GEMEL_FLOAT32, 1, NULL, 0, &none) == GEMEL_FAILED);
  CHECK(gemel_array_create(GEMEL_FLOAT32, 1, extents, 0, NULL) == GEMEL_FAILED);
  CHECK(gemel_array_write(NULL, values, sizeof values) == GEMEL_FAILED);
  CHECK(gemel_array_write(array, NULL, sizeof values) == GEMEL_FAILED);
  CHECK(gemel_array_read(NULL, values, sizeof values) == GEMEL_FAILED);
  CHECK(gemel_array_read(array, NULL, sizeof values) == GEMEL_FAILED);
  FINE(gemel_array_write(empty, NULL, 0));
  FINE(gemel_array_read(empty, NULL, 0));
  CHECK(gemel_plan_load(NULL, 100, &plan) == GEMEL_FAILED);
  CHECK(gemel_plan_load(values, sizeof values, NULL) == GEMEL_FAILED);
  CHECK(gemel_plan_run(NULL, &array, NULL, 0, &none) == GEMEL_FAILED);
  CHECK(gemel_lane_create(NULL, &lane) == GEMEL_FAILED);
  CHECK(gemel_lane_create("none", NULL) == GEMEL_FAILED);
  CHECK(gemel_wait(NULL) == GEMEL_FAILED);
  CHECK(gemel_push(NULL, nothing, NULL, NULL, NULL, 0, NULL, 0, -1) == GEMEL_FAILED);
  CHECK(gemel_push("none", nothing, NULL, NULL, NULL, 1, NULL, 0, -1) == GEMEL_FAILED);
  CHECK(gemel_push("none", nothing, NULL, NULL, &none, 1, NULL, 0, -1) == GEMEL_FAILED);
  CHECK(gemel_push("none", nothing, NULL, NULL, &array, -1, NULL, 0, -1) == GEMEL_FAILED);
  for (lane = -2; lane < 1000; lane += 201) {
    CHECK(gemel_push("none", nothing, NULL, NULL, NULL, 0, NULL, 0, lane) == GEMEL_FAILED);
    CHECK(strncmp(gemel_error(), "ValueError", 10) == 0);
  }
  gemel_array_release(array);
  gemel_array_release(empty);
}

int main(int count, char** arguments) {
  CHECK(gemel_abi() == GEMEL_ABI);
  if (count > 2) {
    run_image(arguments[1], atoll(arguments[2]), arguments + 3, count - 3);
  } else {
    push_work();
    refuse();
    refuse_null();
  }
  FINE(gemel_wait_all());
  gemel_shutdown();
  return 0;
}
