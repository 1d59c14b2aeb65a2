// A fixed-size array: on the stack when it is short, otherwise on the heap.

#pragma once

#include <cstddef>
#include <memory>

namespace gemel {

template <typename T, size_t kInside>
class SmallArray {
 public:
  explicit SmallArray(size_t count)
      : outside_(count > kInside ? new T[count] : nullptr),
        data_(outside_ ? outside_.get() : inside_) {}
  T& operator[](size_t at) { return data_[at]; }
  T* data() { return data_; }

 private:
  T inside_[kInside];
  std::unique_ptr<T[]> outside_;
  T* data_;
};

}  // namespace gemel
