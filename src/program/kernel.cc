#include "program/kernel.h"

namespace gemel {

FailurePointer make_failure(const FailureText& text) {
  return std::make_shared<const Failure>(
      text.type.empty() ? "RuntimeError" : text.type,
      text.message.empty() ? "a kernel reported a failure" : text.message);
}

}  // namespace gemel
