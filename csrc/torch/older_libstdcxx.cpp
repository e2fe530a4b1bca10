// What the headers of GCC 11 and newer call, and older C++ libraries do not export. With these
// definitions, which stay inside this library, it loads where wheels for manylinux_2_28 must
// (GLIBCXX_3.4.24, CXXABI_1.3.11). By their mangled names: headers may declare them or not.
#include <new>

#if defined(__GLIBCXX__)

extern "C" {

// std::__throw_bad_array_new_length(): GLIBCXX_3.4.29.
[[noreturn]] void _ZSt28__throw_bad_array_new_lengthv() { throw std::bad_array_new_length(); }

// std::exception_ptr's copy constructor and destructor, which every version exports
// (CXXABI_1.3.3), count references as the next two do.
void _ZNSt15__exception_ptr13exception_ptrC1ERKS0_(void* self, const void* other);
void _ZNSt15__exception_ptr13exception_ptrD1Ev(void* self);

// std::exception_ptr::_M_addref(): CXXABI_1.3.13.
void _ZNSt15__exception_ptr13exception_ptr9_M_addrefEv(void* self) {
  void* copy;  // never destroyed: the reference is the caller's
  _ZNSt15__exception_ptr13exception_ptrC1ERKS0_(&copy, self);
}

// std::exception_ptr::_M_release(): CXXABI_1.3.13.
void _ZNSt15__exception_ptr13exception_ptr10_M_releaseEv(void* self) {
  _ZNSt15__exception_ptr13exception_ptrD1Ev(self);
}

}  // extern "C"

#endif
