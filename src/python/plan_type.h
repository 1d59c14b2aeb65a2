// Plan: a program as a Python object.

#pragma once

#include <memory>
#include <vector>

#include "program/program.h"
#include "python/wall.h"

namespace gemel {

using KeeperPointer = std::shared_ptr<KeeperOwner>;

bool make_plan_type(PyObject* module);
// Throws TypeError for anything but a Plan.
std::shared_ptr<const Program> program_of(PyObject* object);

// module.cc: the kernels that Python passes with an image; a null iterable means none.
std::vector<Kernel> kernels_from(PyObject* iterable);
// Throws TypeError for anything but a Keeper.
KeeperPointer keeper_from(PyObject* object);
// Throws ValueError for a number that no device has.
int checked_device(long number);

}  // namespace gemel
