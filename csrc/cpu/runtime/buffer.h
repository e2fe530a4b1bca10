// Scratch memory of a layer call.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>

namespace rotcell::cpu {

// Aligned to a cache line and never null, also for no bytes. Throws if there is not enough memory.
void* allocate(int64_t count, int64_t element_size);

// Asks the system for huge pages if the memory is large. Fresh memory at every call would otherwise
// be thousands of small pages, each zeroed at its first touch: a tenth of the time at H = 1024.
void prefer_huge_pages(void* memory, int64_t bytes);

// Uninitialized memory for `count` elements, freed with its owner. Null if default-constructed.
template <class T>
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(int64_t count) : data_(static_cast<T*>(allocate(count, sizeof(T)))) {}

  T* data() const { return data_.get(); }
  explicit operator bool() const { return data_ != nullptr; }

 private:
  struct Free {
    void operator()(T* data) const { std::free(data); }
  };
  std::unique_ptr<T, Free> data_;
};

}  // namespace rotcell::cpu
