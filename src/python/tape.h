// The tape as the core writes it: recorded calls, and what they save. What is read from it and why
// is Python's business (gemel/tape/recording.py).

#pragma once

#include "python/history.h"
#include "python/op_type.h"

namespace gemel {

// An array somebody will read again, and the version it had.
struct Saved {
  PyObject_HEAD PyObject* array;  // without history: that of the original may hold who saves this
  uint64_t version;
  // Its place among those who saved contents of a history; null when that is gone, or has been
  // told.
  History* history;
  Saved* next;
  Saved* previous;
};

// One recorded call: null means None.
struct Call {
  PyObject_HEAD PyObject* kind;
  PyObject* sources;    // per input: where it came from
  PyObject* reads;      // which inputs and outputs are kept
  PyObject* values;     // what is kept: a Saved, or a number
  PyObject* variables;  // outputs whose gradients are wanted
  bool freed;
};

// Puts a call like one that was recorded before on the tape; false when there was none. `wanted`:
// which inputs are tracked.
bool record_like_before(Words key, const Arguments& arguments, uint64_t wanted, PyObject* result);
// What Python says of a call it has recorded: (kind, reads), to know those like it; or None.
void remember_recorded(Words key, PyObject* found);
void forget_recorded();

PyObject* set_call_class(PyObject* type);  // the previous one
void set_source_function(PyObject* function);
bool make_tape_types(PyObject* module);

}  // namespace gemel
