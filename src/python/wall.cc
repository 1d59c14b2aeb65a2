#include "python/wall.h"

#include <unistd.h>

#include <atomic>

#include "python/failures.h"

namespace gemel {
namespace {

// A stack without a lock, because it must work whatever a fork has interrupted.
struct Dropped {
  PyObject* object;
  Dropped* next;
};
std::atomic<Dropped*> dropped{nullptr};

int drop_pending(void*) {
  drop_now();
  return 0;
}

}  // namespace

void sleep_for_ever() {
  for (;;) pause();
}

void set_error_in_flight() noexcept {
  try {
    throw;
  } catch (const Error& error) {
    raise_named(error.type().c_str(), error.what());
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
}

void drop_later(PyObject* object) noexcept {
  if (object == nullptr || !Py_IsInitialized()) return;
  auto* entry = new (std::nothrow) Dropped{object, nullptr};
  if (entry == nullptr) return;  // the object is then never freed
  Dropped* before = dropped.load();
  do {
    entry->next = before;
  } while (!dropped.compare_exchange_weak(before, entry));
  // Once the entry is in the list, another thread may process and free it.
  if (before == nullptr) Py_AddPendingCall(drop_pending, nullptr);
}

void drop_now() {
  Dropped* entry = dropped.exchange(nullptr);
  while (entry != nullptr) {
    Dropped* next = entry->next;
    Py_DECREF(entry->object);
    delete entry;
    entry = next;
  }
}

}  // namespace gemel
