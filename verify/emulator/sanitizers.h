// Which sanitizer the compiler builds for.
#pragma once

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ROTCELL_EMULATOR_ADDRESS 1
#endif
#if __has_feature(thread_sanitizer)
#define ROTCELL_EMULATOR_RACES 1
#endif
#endif

#if defined(__SANITIZE_ADDRESS__)
#define ROTCELL_EMULATOR_ADDRESS 1
#endif
#if defined(__SANITIZE_THREAD__)
#define ROTCELL_EMULATOR_RACES 1
#endif

#if defined(ROTCELL_EMULATOR_ADDRESS)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

// The emulator's own notes about a CUDA thread are written by many fibers without a lock, which is
// right because one runs at a time. Functions that run on a fiber are hidden from ThreadSanitizer,
// so that it watches nothing but the kernel.
#if defined(ROTCELL_EMULATOR_RACES)
#include <sanitizer/tsan_interface.h>
#define ROTCELL_EMULATOR_UNWATCHED __attribute__((no_sanitize("thread"), noinline))
#else
#define ROTCELL_EMULATOR_UNWATCHED
#endif
