// Marks a function for both sides, so that what a kernel computes per value can be tested without a
// device.
#pragma once

#ifdef __CUDACC__
#define LLORCH_HOST_DEVICE __host__ __device__
#else
#define LLORCH_HOST_DEVICE
#endif
