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

# Debian has no static fmt, spdlog or Highway: the first two are compiled in from their headers and their libraries
# then dropped as unneeded; Highway's, one small file, lies beside the tests and is found there.
if(LLORCH_STATIC)
  set_target_properties(fmt::fmt PROPERTIES INTERFACE_COMPILE_DEFINITIONS FMT_HEADER_ONLY)
  set_target_properties(spdlog::spdlog PROPERTIES INTERFACE_COMPILE_DEFINITIONS SPDLOG_FMT_EXTERNAL)
  add_link_options(-static-libstdc++ -static-libgcc -Wl,--as-needed)
  set(CMAKE_BUILD_RPATH $ORIGIN)
  find_library(LLORCH_HWY_SHARED libhwy.so.1 REQUIRED)
  file(REAL_PATH ${LLORCH_HWY_SHARED} hwy_file)
  file(COPY_FILE ${hwy_file} ${CMAKE_BINARY_DIR}/tests/libhwy.so.1 ONLY_IF_DIFFERENT)
endif()

# CUDA: AUTO follows the presence of nvcc, ON insists.
set(LLORCH_WITH_CUDA OFF)
if(NOT LLORCH_CUDA STREQUAL "OFF")
  find_program(LLORCH_NVCC nvcc PATHS /usr/local/cuda/bin)
  if(LLORCH_NVCC)
    set(CMAKE_CUDA_COMPILER ${LLORCH_NVCC})
    set(CMAKE_CUDA_ARCHITECTURES 75-virtual 90-real CACHE STRING "CUDA targets")
    enable_language(CUDA)
    # CMake 3.25 does not know how nvcc is told C++20, and refuses CMAKE_CXX_STANDARD, which CUDA code inherits.
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
    find_package(CUDAToolkit REQUIRED)
    set(LLORCH_WITH_CUDA ON)
  elseif(LLORCH_CUDA STREQUAL "ON")
    message(FATAL_ERROR "LLORCH_CUDA=ON, but nvcc was not found on the PATH or in /usr/local/cuda/bin; "
                        "install the CUDA 13 toolkit or configure with -DLLORCH_CUDA=OFF")
  endif()
endif()
message(STATUS "CUDA backend: ${LLORCH_WITH_CUDA}")
