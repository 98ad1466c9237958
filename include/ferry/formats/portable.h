// What lets one text be built by g++ and by nvcc: the function attributes, and how a loop is compiled.
#pragma once

#if defined(__CUDACC__)
#define FERRY_HD __host__ __device__
#else
#define FERRY_HD
#endif

// Before a loop that has a turn or two, or is rare: a kernel then has the text of the loop once. Small rounds are bound
// by the instruction cache.
#if defined(__CUDA_ARCH__)
#define FERRY_NO_UNROLL _Pragma("unroll 1")
#else
#define FERRY_NO_UNROLL
#endif
