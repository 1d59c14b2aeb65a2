// The part of the tape that the core writes: recorded calls and what they save. Python decides what
// is read from it, and why (gemel/tape/recording.py).

#pragma once

#include "python/history.h"
#include "python/op_type.h"

namespace gemel {

// An array that will be read again, and the version it had.
struct Saved {
  // Without a history: that of the original may keep the owner of this Saved alive.
  PyObject_HEAD PyObject* array;
  uint64_t version;
  // Its place in the list of those that saved contents of a history. Null when the history is gone
  // or has forgotten them.
  History* history;
  Saved* next;
  Saved* previous;
};

// One recorded call. Null means None.
struct Call {
  PyObject_HEAD PyObject* kind;
  PyObject* sources;    // for each input: where it came from
  PyObject* reads;      // which inputs and outputs are kept
  PyObject* values;     // what is kept: a Saved, or a number
  PyObject* variables;  // outputs whose gradients are needed
  bool freed;
};

extern PyTypeObject* saved_type;
extern PyTypeObject* call_type;

inline Saved* as_saved(PyObject* object) { return reinterpret_cast<Saved*>(object); }
inline Call* as_call(PyObject* object) { return reinterpret_cast<Call*>(object); }
inline bool is_saved(PyObject* object) { return Py_TYPE(object) == saved_type; }
inline bool is_call(PyObject* object) { return PyObject_TypeCheck(object, call_type) != 0; }

// Records the call in the same way as an earlier one with the same key; false when there is none.
// `wanted`: which inputs are tracked.
bool record_like_before(Words key, const Arguments& arguments, uint64_t wanted, PyObject* result);
// Remembers what Python says about a recorded call, (kind, reads, whether the output's dtype is
// floating), for later calls with the same key. None: there is nothing to remember.
void remember_recorded(Words key, PyObject* found);
void forget_recorded();

PyObject* set_call_class(PyObject* type);  // the previous one
void set_source_function(PyObject* function);
bool make_tape_types(PyObject* module);

}  // namespace gemel
