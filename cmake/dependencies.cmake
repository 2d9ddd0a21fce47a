# Third-party libraries, all from the system's packages (scripts/setup.sh). Nothing is vendored.
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(OpenSSL 3 REQUIRED)
find_package(CLI11 REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(HWY REQUIRED IMPORTED_TARGET libhwy)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(UTF8PROC REQUIRED IMPORTED_TARGET libutf8proc)
find_package(Boost 1.81 REQUIRED)  # headers only: Asio, Beast and JSON are compiled into our own objects
if(LLORCH_BUILD_TESTS)
  find_package(GTest REQUIRED)
  find_package(benchmark REQUIRED)
  include(GoogleTest)
endif()

# CUDA: AUTO follows the presence of nvcc, ON insists.
set(LLORCH_WITH_CUDA OFF)
if(NOT LLORCH_CUDA STREQUAL "OFF")
  find_program(LLORCH_NVCC nvcc PATHS /usr/local/cuda/bin)
  if(LLORCH_NVCC)
    set(CMAKE_CUDA_COMPILER ${LLORCH_NVCC})
    # CMake 3.25 does not know CUDA C++20: the standard is given as a plain option, CUDA_STANDARD stays unset.
    set(CMAKE_CUDA_ARCHITECTURES 75-virtual 90-real CACHE STRING "CUDA targets")
    enable_language(CUDA)
    find_package(CUDAToolkit REQUIRED)
    set(LLORCH_WITH_CUDA ON)
  elseif(LLORCH_CUDA STREQUAL "ON")
    message(FATAL_ERROR "LLORCH_CUDA=ON, but nvcc was not found on the PATH or in /usr/local/cuda/bin; "
                        "install the CUDA 13 toolkit or configure with -DLLORCH_CUDA=OFF")
  endif()
endif()
message(STATUS "CUDA backend: ${LLORCH_WITH_CUDA}")
