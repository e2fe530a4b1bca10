// A CUDA stream as a pointer to something unknown, so that code without CUDA headers can pass one
// on. The CUDA headers declare cudaStream_t as the same pointer.
#pragma once

struct CUstream_st;

namespace rotcell::cuda {

using Stream = CUstream_st*;

}  // namespace rotcell::cuda
