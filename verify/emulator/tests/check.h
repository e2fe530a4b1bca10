// What the parts of the emulator's test share.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cuda/platform/platform.h"
#include "emulator/control.h"

namespace rotcell::tests {

// Counts, and prints what failed.
void check(bool right, const std::string& what);

// The error of the launch must hold all of `parts`.
void expect_error(const std::string& what, const std::vector<std::string>& parts,
                  const std::function<void()>& launch);

// body(name of the order) in each order; afterwards the order is forward.
void in_every_order(const std::function<void(const std::string&)>& body);

// A heap block of the exact size, aligned as CUDA's allocations are, full of NaNs.
template <class T>
class Buffer {
 public:
  explicit Buffer(size_t count) : size_(count), memory_(allocate(count), std::free) {}

  T* data() { return memory_.get(); }
  size_t size() const { return size_; }
  T& operator[](size_t i) { return memory_.get()[i]; }

 private:
  static T* allocate(size_t count);

  size_t size_;
  std::unique_ptr<T, void (*)(void*)> memory_;
};

template <class T>
T* Buffer<T>::allocate(size_t count) {
  void* memory = nullptr;
  if (posix_memalign(&memory, 256, count * sizeof(T)) != 0) throw std::bad_alloc();
  std::memset(memory, 0xff, count * sizeof(T));
  return static_cast<T*>(memory);
}

// A kernel's parameters where one output and one size will do.
struct Output {
  float* out;
  int size;
};

void test_results(const std::string& order);  // with the order that is set
void test_clusters(const std::string& order);
void test_scheduling();
void test_misuse();
void test_cluster_misuse();
void test_numbers();

// Runs a kernel with a fault that only a sanitizer can see. False if there is none of that name.
bool run_fault(const std::string& name);

}  // namespace rotcell::tests
