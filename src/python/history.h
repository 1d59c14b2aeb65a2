// Where the contents of an array come from, as far as gradients are concerned.
//
// All arrays that see the same contents share one history: a view has that of the array it is a
// view of, from the moment it is made. So what one of them writes, all of them see. An array that
// has never been looked at through another, and was not recorded, has none.

#pragma once

#include "python/array.h"

namespace gemel {

struct Saved;

struct History {
  PyObject_HEAD Tensor base;  // the array it was made for: the others are views of that
  // Null means None in all of these. What they are is the tape's business.
  PyObject* source;    // what made the contents of `base`
  PyObject* variable;  // what `source` was when the array became a variable
  PyObject* views;     // what made the contents of views, for this source
  Saved* saved;        // who has kept the contents (tape.h): the first of a list, not owned
};

// Whether a recorded computation made its contents.
inline bool is_tracked(PyObject* array) {
  const History* history = as_array(array)->history;
  return history != nullptr && history->source != nullptr;
}
// Whether that made them what they are: not so of a variable that is as it was set.
inline bool is_computed(PyObject* array) {
  return is_tracked(array) &&
         as_array(array)->history->source != as_array(array)->history->variable;
}
// Whether a write while recording concerns the tape.
inline bool is_watched(PyObject* array) {
  const History* history = as_array(array)->history;
  return history != nullptr && (history->source != nullptr || history->saved != nullptr);
}

// `view`, which is new, shows contents of `array`.
void share_history(PyObject* array, PyObject* view);

// Attributes of arrays.
PyObject* get_history(PyObject* array, void*);
int set_history(PyObject* array, PyObject* value, void*);
PyObject* get_is_base(PyObject* array, void*);
PyObject* get_is_tracked(PyObject* array, void*);
PyObject* track(PyObject* array, PyObject* source);
// The history of an array, made if there is none.
History* history_of(PyObject* array);
PyObject* shared_history(PyObject* array, PyObject*);

// tape.cc: keeps the contents of an array; a Saved.
PyObject* save_array(PyObject* array, PyObject*);
// All who have kept contents of a history, as a list; it no longer knows them.
PyObject* take_saved(PyObject* history, PyObject*);
void leave_saved(History* history);

bool make_history_type(PyObject* module);

}  // namespace gemel
