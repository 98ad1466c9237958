// What lets one text be built by g++ and by nvcc: the function attributes, and nothing else.
#pragma once

#if defined(__CUDACC__)
#define FERRY_HD __host__ __device__
#else
#define FERRY_HD
#endif
