// Where the contents of an array come from, for computing gradients.
//
// All arrays with the same contents share one history: a view has the history of its base from the
// moment it is made. So all of them see what any of them writes. An array that was never viewed and
// never recorded has no history.

#pragma once

#include "python/array.h"

namespace gemel {

struct Saved;

struct History {
  PyObject_HEAD Tensor base;  // the array it was made for; the others are views of this one
  // Null means None for all of these. Their meaning is known only to the tape.
  PyObject* source;    // what made the contents of `base`
  PyObject* variable;  // what `source` was when the array became a variable
  PyObject* views;     // what made the contents of the views, for this source
  Saved* saved;  // the first of a list of those that have saved the contents (tape.h); not owned
};

// Whether a recorded computation made the contents.
inline bool is_tracked(PyObject* array) {
  const History* history = as_array(array)->history;
  return history != nullptr && history->source != nullptr;
}
// Whether a recorded computation made the present contents. False for a variable that still has the
// contents it was given.
inline bool is_computed(PyObject* array) {
  return is_tracked(array) &&
         as_array(array)->history->source != as_array(array)->history->variable;
}
// Whether the tape has to know about a write while recording.
inline bool is_watched(PyObject* array) {
  const History* history = as_array(array)->history;
  return history != nullptr && (history->source != nullptr || history->saved != nullptr);
}

// `view` is new and shows contents of `array`.
void share_history(PyObject* array, PyObject* view);

// Attributes of arrays.
PyObject* get_history(PyObject* array, void*);
int set_history(PyObject* array, PyObject* value, void*);
PyObject* get_is_base(PyObject* array, void*);
PyObject* get_is_tracked(PyObject* array, void*);
PyObject* track(PyObject* array, PyObject* source);
// The history of an array; creates it if there is none.
History* history_of(PyObject* array);
PyObject* shared_history(PyObject* array, PyObject*);

// tape.cc: saves the contents of an array; returns a Saved.
PyObject* save_array(PyObject* array, PyObject*);
// A list of all that have saved contents of this history, which then forgets them.
PyObject* take_saved(PyObject* history, PyObject*);
void leave_saved(History* history);

bool make_history_type(PyObject* module);

}  // namespace gemel
